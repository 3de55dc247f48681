// Messages to a delegation that is not finished, and the request to wrap up.

import { ApiError, scopes, sendMessage } from "./api.js";
import { announce, h, setText } from "./dom.js";
import { visible } from "./text.js";

/** A form for one delegation; hidden where it is finished, or where the token may not send. */
export class MessageForm {
  #id;
  #text;
  #problem;
  #busy = false;

  constructor(id) {
    this.#id = id;
    this.#problem = h("p", { id: "message-problem", class: "problem", role: "alert" });
    this.#text = h("input", {
      id: "message", type: "text", autocomplete: "off", "aria-describedby": this.#problem.id,
      placeholder: "The model reads it before its next turn",
    });
    this.node = h("form", { class: "message", hidden: true, onsubmit: (event) => this.#submit(event, "steer") },
      h("label", { for: this.#text.id }, "Message"),
      h("div", { class: "row" }, this.#text, h("button", { type: "submit", class: "primary" }, "Send"),
        h("button", {
          type: "button", title: "No further calls, one last turn for the report",
          onclick: (event) => this.#submit(event, "wrapUp"),
        }, "Wrap up")),
      this.#problem);
  }

  /** Takes whether the delegation is finished. */
  update(finished) {
    this.node.hidden = finished || (scopes !== null && !scopes.includes("submit"));
  }

  async #submit(event, mode) {
    event.preventDefault();
    if (this.#busy) return;
    this.#busy = true;
    setText(this.#problem, "");
    try {
      if (mode === "steer" && !this.#text.value.trim()) throw new ApiError(0, { detail: "Write a message first." });
      await sendMessage(this.#id, this.#text.value, mode);
      this.#text.value = "";
      announce(mode === "steer" ? "Message sent" : "Asked to wrap up");
    } catch (error) {
      setText(this.#problem, visible(error.message));
    }
    this.#busy = false;
    this.#text.focus();
  }
}
