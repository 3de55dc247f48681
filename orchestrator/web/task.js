// The form for a new task: the fields of a request, a file to work on, and what the service finds wrong with them.

import { get, newKey, open, parseJson, post } from "./api.js";
import { h, setText } from "./dom.js";
import { visible } from "./text.js";

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const names = (text) => text.split(/[\s,]+/u).filter(Boolean);
const text = (value) => value;

/** Thrown for a value that no request can have. */
class Mistake extends Error {}

function labelsOf(given) {
  return Object.fromEntries(names(given).map((label) => {
    const [key, ...value] = label.split(":");
    if (!key || !value.length) throw new Mistake(`${label} is not key:value`);
    return [key, value.join(":")];
  }));
}

function objectOf(given) {
  let value;
  try {
    value = JSON.parse(given);
  } catch (error) {
    throw new Mistake(`This is not JSON: ${error.message}`);
  }
  if (Object.prototype.toString.call(value) !== "[object Object]") throw new Mistake("This is not a JSON object.");
  return value;
}

const OTHER = "";
/** Pointer into the request, label, hint, how its value is made of the text, and attributes of its control. */
const MAIN = [
  ["task", "Task", "What to do, in words that are complete by themselves.", text, { rows: 4, required: true }],
  ["expectedOutcome", "Expected outcome", "What must be true at the end.", text, { rows: 2 }],
  ["verify", "Checks", "A command per line that must succeed afterwards, on files the run cannot reach.",
    (given) => lines(given).map((run) => ({ kind: "command", run })), { rows: 2, spellcheck: "false" }],
  ["context", "Context", "Background that the work needs.", text, { rows: 2 }],
];
const AGENT = [
  ["agent", "Agent", "An agent of the service's settings.", text, { list: "known-agents" }],
  ["model", "Model", "Empty: the configured one.", text, { list: "known-models" }],
  ["approvalMode", "Approval", "Who decides about risky calls.", text, { choices: {
    "": "default (sandboxed)", sandboxed: "sandboxed: asks before effects outside of its copy",
    ask: "ask about each change", auto: "auto: asks about nothing", readOnly: "readOnly: changes nothing",
  } }],
  ["tools", "Tools", "Names or patterns; empty: the default selection.", names, { list: "known-tools" }],
];
const LIMITS = [
  ["limits/maxTurns", "Turns", "", Number, { type: "number", min: 1 }],
  ["limits/maxToolCalls", "Tool calls", "", Number, { type: "number", min: 0 }],
  ["limits/timeoutSeconds", "Seconds", "", Number, { type: "number", min: 1 }],
  ["limits/maxTokens", "Tokens", "", Number, { type: "number", min: 1 }],
  ["limits/maxCostUsd", "US dollars", "", Number, { type: "number", min: 0, step: "any" }],
];
const MORE = [
  ["deliver/branch", "Deliver as branch", "Of a git workspace; {id} is filled in.", text],
  ["labels", "Labels", "key:value, to find it by.", labelsOf],
  ["sessionId", "Session", "The conversation that it belongs to.", text],
  ["priority", "Priority", "0 to 9, higher starts first; default 5.", Number, { type: "number", min: 0, max: 9 }],
  ["outputSchema", "Output schema", "The JSON Schema of the data that the result has as its output.", objectOf,
    { rows: 2, spellcheck: "false" }],
  ["systemPrompt", "System prompt", "Who the worker is and how it works, instead of ours.", text, { rows: 2 }],
  [OTHER, "Other fields", "As JSON, such as after, retry, webhook or protect: see /openapi.json.", objectOf,
    { rows: 2, spellcheck: "false", placeholder: '{"after": [{"id": "dlg_…"}]}' }],
];
const WORKSPACES = {
  empty: ["An empty folder", []],
  directory: ["A directory of the service's machine",
    [["path", "Path", "It gets a copy; the original is never changed.", { wide: true }]]],
  git: ["A git repository", [["url", "URL", "", { wide: true }],
    ["ref", "Branch, tag or commit", "Empty: the default branch."]]],
  archive: ["An archive from this machine",
    [["upload", "File", "zip or tar.", { type: "file", accept: ".zip,.tar,.gz,.tgz,.xz,.bz2" }]]],
};

export class TaskForm {
  #context;
  #controls = new Map();
  #problem = h("p", { class: "problem", role: "alert" });
  #kind;
  #workspace = h("div", { class: "fields" });
  /** What the service knows of agents, models and tools, offered in their fields. */
  #known = Object.fromEntries(
    ["agents", "models", "tools"].map((each) => [each, h("datalist", { id: `known-${each}` })]));
  #submit = h("button", { type: "submit", class: "primary" }, "Delegate");
  #key = newKey();

  constructor(context) {
    this.#context = context;
    this.#kind = h("select", { id: "field-workspace", onchange: () => this.#showWorkspace() },
      Object.entries(WORKSPACES).map(([kind, [label]]) => h("option", { value: kind }, label)));
    const group = (title, ...children) => h("fieldset", {}, h("legend", {}, title), children);
    const fields = (rows) => h("div", { class: "fields" }, rows.map((row) => this.#field(...row)));
    this.node = h("form", { class: "task-form panel", novalidate: true, autocomplete: "off",
      oninput: ({ target }) => this.#clearMistakes(target), onsubmit: (event) => this.#send(event),
      onkeydown: (event) => this.#shortcut(event) },
      h("h2", { tabindex: "-1" }, "New task"),
      MAIN.map((row) => this.#field(...row)),
      group("Workspace", h("div", { class: "fields" }, h("div", { class: "field wide" },
        h("label", { for: this.#kind.id }, "Works on"), this.#kind)), this.#workspace),
      h("details", {}, h("summary", {}, "Agent, model and tools: the service's defaults"), fields(AGENT)),
      Object.values(this.#known),
      h("details", {}, h("summary", {}, "Limits: the service's caps lower them"), fields(LIMITS)),
      h("details", {}, h("summary", {}, "Delivery, labels and more"), fields(MORE)),
      this.#problem,
      h("div", { class: "row" }, this.#submit, h("a", { class: "button", href: "#" }, "Back"),
        h("span", { class: "faint" }, "Ctrl + Enter delegates")));
    this.#showWorkspace();
  }

  /** Asks the service what it knows, to be offered; the fields take other names, too. */
  async offer() {
    const [tools, workers, { items }] = await Promise.all(
      [get("v1/tools"), get("v1/workers"), get("v1/delegations?limit=100")]);
    const requests = items.map(({ request }) => request);
    const offered = {
      agents: requests.map(({ agent }) => agent),
      models: [...workers.map(({ model }) => model), ...requests.map(({ model }) => model)],
      tools: tools.map(({ name }) => name),
    };
    for (const [what, given] of Object.entries(offered)) {
      const sorted = [...new Set(given.filter(Boolean))].sort();
      this.#known[what].replaceChildren(...sorted.map((value) => h("option", { value })));
    }
  }

  #field(pointer, label, hint, valueOf = text, { choices, rows, wide = rows || choices, ...attributes } = {}) {
    const id = `field-${pointer.replace("/", "-") || "other"}`;
    const shared = { id, "aria-describedby": `${id}-hint ${id}-problem`, ...attributes };
    const options = Object.entries(choices ?? {}).map(([value, words]) => h("option", { value }, words));
    const control = choices ? h("select", shared, options)
      : rows ? h("textarea", { rows, ...shared }) : h("input", { type: "text", spellcheck: "false", ...shared });
    const problem = h("p", { id: `${id}-problem`, class: "problem" });
    this.#controls.set(pointer, { control, problem, valueOf });
    return h("div", { class: wide ? "field wide" : "field" }, h("label", { for: id }, label), control,
      h("p", { id: `${id}-hint`, class: "faint" }, hint), problem);
  }

  #showWorkspace() {
    for (const pointer of this.#controls.keys()) if (pointer.startsWith("workspace/")) this.#controls.delete(pointer);
    const [, rows] = WORKSPACES[this.#kind.value];
    this.#workspace.replaceChildren(...rows.map(([name, label, hint, attributes]) =>
      this.#field(`workspace/${name}`, label, hint, text, attributes)));
  }

  #shortcut(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.node.requestSubmit();
  }

  /** The request, of the fields that are filled in: an agent may fill in the others. Shows mistakes at their fields. */
  async #request() {
    const request = {};
    let mistakes = 0;
    for (const [pointer, { control, valueOf }] of this.#controls) {
      const given = control.value.trim();
      if (!given || control.type === "file") continue;
      try {
        const [name, below] = pointer.split("/");
        if (pointer === OTHER) Object.assign(request, valueOf(given));
        else if (below) request[name] = { ...request[name], [below]: valueOf(given) };
        else request[name] = valueOf(given);
      } catch (error) {
        if (!(error instanceof Mistake)) throw error;
        this.#point(pointer, error.message);
        mistakes += 1;
      }
    }
    if (!request.task) mistakes += this.#point("task", "Write what is to be done.");
    if (mistakes) return null;
    if (this.#kind.value !== "empty") request.workspace = { kind: this.#kind.value, ...request.workspace };
    const file = this.#controls.get("workspace/upload")?.control.files[0];
    if (file) request.workspace.upload = await this.#upload(file);
    return request;
  }

  async #upload(file) {
    const headers = { "Content-Type": "application/octet-stream" };
    return parseJson(await (await open("v1/uploads", { method: "PUT", headers, body: file })).text()).upload;
  }

  /** Shows a mistake at the field of this pointer, or of what holds it. Returns 1, or 0 where there is none. */
  #point(pointer, detail) {
    const parts = pointer.replace(/^\//u, "").split("/");
    const found = [parts.slice(0, 2).join("/"), parts[0]].map((each) => this.#controls.get(each)).find(Boolean);
    if (!found) return 0;
    setText(found.problem, visible(detail));
    found.control.setAttribute("aria-invalid", "true");
    const fold = found.control.closest("details");
    if (fold) fold.open = true;
    if (!this.node.contains(document.activeElement) || document.activeElement === this.#submit) found.control.focus();
    return 1;
  }

  #clearMistakes(changed = null) {
    setText(this.#problem, "");
    for (const { control, problem } of this.#controls.values()) {
      if (changed && changed !== control) continue;
      setText(problem, "");
      control.removeAttribute("aria-invalid");
    }
  }

  async #send(event) {
    event.preventDefault();
    if (this.#submit.disabled) return;
    this.#clearMistakes();
    this.#submit.disabled = true;
    setText(this.#submit, "Delegating…");
    try {
      const request = await this.#request();
      if (request) this.#accepted(await post("v1/delegations", { ...request, idempotencyKey: this.#key }));
    } catch (error) {
      if (error.status === 422) this.#key = newKey(); // nothing was accepted under it, or something else
      const rest = (error.errors ?? []).filter(({ pointer, detail }) => !this.#point(pointer, detail));
      if (!error.errors?.length || rest.length) setText(this.#problem, visible(error.message));
    }
    this.#submit.disabled = false;
    setText(this.#submit, "Delegate");
  }

  #accepted(delegation) {
    this.#key = newKey();
    this.node.reset();
    this.#showWorkspace();
    this.#context.changed(delegation);
    location.replace(`#${delegation.id}`); // back leads to before the form, which is empty now
  }
}
