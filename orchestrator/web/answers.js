// The answers of one permission request: a button for each outcome, the reason of a denial, the editor of arguments.

import { h } from "./dom.js";
import { visible, visibleJson } from "./text.js";

const LASTING = {
  proceed_always: "Always in this run",
  proceed_always_tool: "Always this tool",
  proceed_always_server: "Always this server",
};
const CUT = "… [cut: ";

/**
 * The answers of a request. `send(outcome, fields)` sends one; it returns null, or the ApiError that refused it.
 */
export class Answers {
  constructor(request, send) {
    this.#request = request;
    this.#send = send;
    this.#id = request.permissionId;
    this.#problem = h("p", { class: "problem", role: "alert" });
    this.#note = h("p", { class: "problem faint", id: `${this.#id}-note` });
    this.#editor = this.#makeEditor();
    this.node = h("div", { class: "answers" }, this.#makeButtons(), this.#note, this.#problem, this.#editor);
  }

  #request;
  #send;
  #id;
  #problem;
  #note;
  #editor;
  #text;
  #textProblem;
  #reason;
  #change;
  #busy = false;
  #refusal = "";

  /** Makes all of it unusable with this explanation, or usable again with "". */
  refuse(explanation) {
    this.#refusal = explanation;
    this.#note.textContent = explanation;
    this.#enable();
  }

  /** Sends this answer, as its button does. */
  give(outcome) {
    return this.#answer(outcome);
  }

  #makeButtons() {
    const button = (outcome, text, style = "") =>
      h("button", { type: "button", class: style, onclick: () => this.#answer(outcome) }, text);
    const { remembers } = this.#request;
    const permits = (outcome) => JSON.stringify(remembers[outcome]);
    // Of answers that permit the same only the first one.
    const lasting = Object.entries(LASTING).filter(([outcome], at, all) => outcome in remembers &&
      !all.slice(0, at).some(([earlier]) => permits(earlier) === permits(outcome)));
    this.#change = h("button", { type: "button", "aria-expanded": "false", onclick: () => this.#toggle() }, "Change…");
    this.#reason = h("input", {
      type: "text", maxlength: "2000", autocomplete: "off",
      placeholder: "Reason (optional)", "aria-label": "Reason of a denial",
    });
    const deny = (event) => {
      event.preventDefault();
      this.#answer("cancel", { reason: this.#reason.value.trim() });
    };
    return [
      h("div", { class: "row" }, button("proceed_once", "Approve once", "primary"),
        lasting.map(([outcome, text]) => button(outcome, text)), this.#change),
      lasting.length > 0 && h("ul", { class: "faint grants" }, lasting.map(([outcome, text]) =>
        h("li", {}, `${text}: `, this.#request.remembers[outcome].map((grant) =>
          h("code", { class: "item" }, visible(grant)))))),
      h("form", { class: "row", onsubmit: deny },
        this.#reason, h("button", { type: "submit", class: "danger" }, "Deny")),
    ];
  }

  #makeEditor() {
    const problem = `${this.#id}-problem`;
    const given = visibleJson(this.#request.step.arguments);
    this.#text = h("textarea", {
      id: `${this.#id}-arguments`, rows: Math.min(16, given.split("\n").length + 1), spellcheck: "false",
      autocomplete: "off", "aria-describedby": problem,
    });
    this.#text.value = given;
    this.#textProblem = h("ul", { id: problem, class: "problem", role: "alert" });
    return h("form", { class: "editor", hidden: true, onsubmit: (event) => this.#modify(event) },
      h("label", { for: this.#text.id }, "Arguments of the call, as JSON"),
      given.includes(CUT) && h("p", { class: "problem" }, "Long texts were cut here; the call has them whole."),
      this.#text, this.#textProblem,
      h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Execute with these"),
        h("button", { type: "button", onclick: () => this.#toggle() }, "Back")));
  }

  #toggle() {
    const opens = this.#editor.hidden;
    this.#editor.hidden = !opens;
    this.#change.setAttribute("aria-expanded", String(opens));
    (opens ? this.#text : this.#change).focus();
  }

  async #modify(event) {
    event.preventDefault();
    try {
      const parsed = JSON.parse(this.#text.value);
      if (Object.prototype.toString.call(parsed) !== "[object Object]") throw new Error("it is not an object");
    } catch (error) {
      this.#showMistakes([`This is not valid: ${error.message}`]);
      return;
    }
    await this.#answer("modify", { argumentsText: this.#text.value });
  }

  #showMistakes(mistakes) {
    this.#textProblem.replaceChildren(...mistakes.map((mistake) => h("li", {}, visible(mistake))));
    this.#text.setAttribute("aria-invalid", String(mistakes.length > 0));
    if (mistakes.length) this.#text.focus();
  }

  async #answer(outcome, fields = {}) {
    if (this.#busy || this.#refusal) return;
    this.#busy = true;
    this.#problem.textContent = "";
    this.#showMistakes([]);
    this.node.setAttribute("aria-busy", "true");
    const error = await this.#send(outcome, fields);
    this.#busy = false;
    this.node.removeAttribute("aria-busy");
    if (!error) return;
    if (outcome === "modify" && error.status === 422) {
      const line = ({ pointer, detail }) => `${pointer.replace(/^\/arguments/u, "")} ${detail}`.trim();
      const mistakes = error.errors.map(line);
      this.#showMistakes(mistakes.length ? mistakes : [error.message]);
    } else {
      this.#problem.textContent = visible(error.message);
    }
  }

  /** `disabled` would take the focus away, so only what cannot be used at all gets it. */
  #enable() {
    for (const control of this.node.querySelectorAll("button, input, textarea")) {
      control.disabled = this.#refusal !== "";
      if (this.#refusal) control.setAttribute("aria-describedby", this.#note.id);
    }
  }
}
