// The slider that goes back to any event of a run, and plays it from there. At its end it follows what happens now.

import { h, setText } from "../dom.js";
import { clock } from "../text.js";

const PLAY_MS = 80;
const PLAY_STEPS = 150; // of a whole run, whatever its length

export class Replay {
  /** How many events are shown; null: all, also those to come. */
  position = null;
  #events = [];
  #timer = 0;
  #onChange;

  constructor(onChange) {
    this.#onChange = onChange;
    this.slider = h("input", { type: "range", min: "1", max: "1", value: "1", "aria-label": "Replay", oninput: () => {
      this.stop();
      this.#set(Number(this.slider.value));
    } });
    this.button = h("button", { type: "button", class: "quiet play", "aria-label": "Play",
      onclick: () => (this.#timer ? this.stop() : this.#play()) }, "▶");
    this.label = h("span", { class: "faint at" });
    this.back = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.end() }, "To the end");
    this.node = h("div", { class: "replay" }, this.button, this.slider, this.label, this.back);
  }

  /** Takes the events there are, and the time that is shown. */
  update(events, at) {
    this.#events = events;
    const length = Math.max(1, events.length);
    this.slider.max = String(length);
    if (this.position === null) this.slider.value = String(length);
    const event = events[(this.position ?? length) - 1];
    if (!event) return;
    setText(this.label, clock(at));
    this.slider.setAttribute("aria-valuetext", `${clock(at)}: ${event.type.replaceAll("_", " ")}`);
  }

  end() {
    this.stop();
    this.#set(this.#events.length);
  }

  stop() {
    clearInterval(this.#timer);
    this.#timer = 0;
    setText(this.button, "▶");
    this.button.setAttribute("aria-label", "Play");
  }

  #play() {
    const size = Math.max(1, Math.round(this.#events.length / PLAY_STEPS));
    this.button.setAttribute("aria-label", "Pause");
    setText(this.button, "❚❚");
    if (this.position === null) this.#set(1);
    this.#timer = setInterval(() => {
      if (this.position === null) this.stop();
      else this.#set(this.position + size);
    }, PLAY_MS);
  }

  #set(position) {
    this.position = position >= this.#events.length ? null : Math.max(1, position);
    this.slider.value = String(this.position ?? this.#events.length);
    this.back.hidden = this.position === null;
    this.#onChange(this.position);
  }
}
