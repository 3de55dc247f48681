// What a person can do about a delegation: message, wrap up, cancel, resume; continue and retry when it has ended.

import { newKey, post, scopes } from "./api.js";
import { isFinished } from "./delegations.js";
import { announce, h, setText } from "./dom.js";
import { count, visible } from "./text.js";

const DOUBT_MS = 4000;
const DOUBLE_CLICK_MS = 500;
const SENT = "Sent. The model reads it before its next turn.";

/**
 * A button that acts at its second click; for `DOUBT_MS` after the first one it shows a question. A double click is
 * one click.
 */
function doubtful(attributes, text, question, act) {
  let timer = 0;
  const reset = () => {
    clearTimeout(timer);
    timer = 0;
    setText(button, text);
    button.classList.remove("sure");
    button.removeAttribute("aria-disabled");
  };
  const button = h("button", {
    type: "button", ...attributes,
    onblur: () => timer && reset(),
    onclick() {
      if (button.ariaDisabled) return;
      if (timer) {
        reset();
        act();
        return;
      }
      setText(button, question());
      button.classList.add("sure");
      announce(question());
      timer = setTimeout(reset, DOUBT_MS);
      button.ariaDisabled = "true";
      setTimeout(() => button.removeAttribute("aria-disabled"), DOUBLE_CLICK_MS);
    },
  }, text);
  return button;
}

/**
 * A button that cancels the delegations of `ids()`, or the one with this title; `onAsked(id, problem)` is called before
 * the service is asked, and with the problem where it refuses.
 */
export function cancelButton(text, ids, onAsked, title = null) {
  const cancel = async (id, _, { length }) => {
    onAsked(id, null);
    try {
      await post(`v1/delegations/${id}/cancel`);
      announce(`Cancelled: ${title ?? count(length, "delegation")}`);
    } catch (error) {
      onAsked(id, error);
      announce(`Not cancelled: ${visible(error.message)}`);
    }
  };
  const question = () => (ids().length === 1 ? "Cancel it?" : `Cancel ${count(ids().length, "delegation")}?`);
  const named = title && { "aria-label": `Cancel ${title}`, title: "Cancel" };
  return doubtful({ class: "cancel", ...named }, text, question, () => ids().forEach(cancel));
}

/** The actions that the state of a delegation allows, as the only child of `place`; none without the scope `submit`. */
export class Actions {
  #id;
  #context;
  #text;
  #problem = h("p", { class: "problem", role: "alert" });
  #note = h("p", { class: "faint", role: "status" });
  #buttons = {};
  #busy = false;
  #key = newKey();
  #finished = null;
  #turn = 0;

  constructor(place, delegation, context) {
    this.#id = delegation.id;
    this.#context = context;
    this.#text = h("textarea", { id: "action-text", rows: "2", autocomplete: "off", onkeydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.node.requestSubmit();
      }
    } });
    const submit = (event) => this.#submit(event);
    this.node = h("form", { class: "actions panel", "aria-label": "Actions", onsubmit: submit },
      h("label", { for: "action-text" }), this.#text, h("div", { class: "row" }, this.#makeButtons()),
      this.#note, this.#problem);
    place.append(this.node);
    this.update(delegation);
  }

  #makeButtons() {
    const button = (text, act, title) => h("button", { type: "button", title, onclick: () => this.#do(act) }, text);
    this.#buttons = {
      send: h("button", { type: "submit", class: "primary" }),
      wrapUp: button("Wrap up", () => this.#wrapUp(), "No further calls, one last turn for the report"),
      resume: button("Resume", () => this.#start("resume"), "Nothing works on it until it is resumed"),
      retry: button("Retry", () => this.#start("retry", {}), "The same task again, as a new delegation"),
      cancel: doubtful({ class: "danger" }, "Cancel", () => "Cancel it for good?",
        () => this.#do(() => this.#cancel())),
    };
    return Object.values(this.#buttons);
  }

  update(delegation) {
    const finished = isFinished(delegation);
    const { turn } = delegation.progress;
    if (turn !== this.#turn && this.#note.textContent === SENT) setText(this.#note, "");
    this.#turn = turn;
    const { send, wrapUp, resume, retry, cancel } = this.#buttons;
    this.node.hidden = scopes !== null && !scopes.includes("submit");
    for (const each of [wrapUp, cancel]) each.hidden = finished;
    retry.hidden = !finished;
    resume.hidden = finished || !delegation.paused;
    setText(send, finished ? "Continue" : "Send");
    setText(this.node.querySelector("label"), finished ? "Continue with" : "Message");
    this.#text.placeholder = finished ? "What is to be done now, in the same conversation and files" :
      "The model reads it before its next turn";
    if (finished && this.#finished === false) setText(this.#note, "");
    this.#finished = finished;
  }

  #submit(event) {
    event.preventDefault();
    const text = this.#text.value.trim();
    this.#do(async () => {
      if (!text) throw new Error(this.#finished ? "Write what is to be done now." : "Write a message first.");
      if (this.#finished) await this.#start("continue", { text });
      else await this.#send(text);
    });
  }

  async #do(act) {
    if (this.#busy) return;
    this.#busy = true;
    setText(this.#problem, "");
    try {
      await act();
    } catch (error) {
      setText(this.#note, "");
      setText(this.#problem, visible(error.message));
    }
    this.#busy = false;
  }

  /** The text goes at once, and comes back where it is refused. */
  async #send(text) {
    this.#text.value = "";
    this.#text.focus();
    setText(this.#note, "Sending…");
    try {
      await post(`v1/delegations/${this.#id}/messages`, { text, mode: "steer" });
    } catch (error) {
      this.#text.value ||= text;
      throw error;
    }
    setText(this.#note, SENT);
  }

  async #wrapUp() {
    setText(this.#note, "Asked to wrap up: one last turn for the report.");
    await post(`v1/delegations/${this.#id}/messages`, { text: this.#text.value.trim(), mode: "wrapUp" });
    this.#text.value = "";
  }

  async #cancel() {
    setText(this.#note, "Cancelling…");
    this.#context.changed?.(await post(`v1/delegations/${this.#id}/cancel`));
  }

  /** Starts what goes on with this delegation. The same key as long as it is not accepted: never two of them. */
  async #start(verb, body) {
    const path = `v1/delegations/${this.#id}/${verb}`;
    const started = await post(path, body && { ...body, idempotencyKey: this.#key });
    this.#key = newKey();
    this.#text.value = "";
    this.#context.changed?.(started);
    if (started.id !== this.#id) this.#context.navigate(`#${started.id}`);
  }
}
