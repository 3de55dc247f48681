// One delegation: its request, its result, and its events as they come.

import { get, open } from "./api.js";
import { facts, SIGNS, statusText } from "./delegations.js";
import { block, diffView, folded } from "./details.js";
import { h, setText } from "./dom.js";
import { actionsFor } from "./actions.js";
import { EventStream } from "./stream.js";
import { cut, visible, visibleBlock, visibleJson } from "./text.js";

const MOST_LINES = 500;
const MOST_CALL_ERRORS = 50;

/** The verdict on a result, why it is that, and what became of each check. */
function verdictView({ verdict, why, checks }) {
  const what = ({ item }) => visible(item.run ?? item.path ?? (item.paths ?? []).join(", "));
  const lines = checks.map((check) =>
    h("li", {}, h("code", {}, what(check)), ` ${visible(check.outcome.replace("_", " "))}: ${visible(check.why)}`));
  return h("div", { class: "verdict" }, h("p", {}, "Verdict: ", h("span", { class: "badge" }, visible(verdict)),
    why && ` ${visible(why)}`), h("ul", { "aria-label": "Checks" }, lines));
}

/** Draws a delegation; returns what ends that, with `pause` and `resume` for while nobody looks. */
export function mount(root, id, context) {
  const run = new Run(root, context);
  run.show(id);
  return Object.assign(() => run.pause(), { pause: () => run.pause(), resume: () => run.resume() });
}

export class Run {
  #root;
  #context;
  #id = null;
  #stream = null;
  #parts = null;
  #finished = false;
  #outcome = null;
  #message = null;

  constructor(root, context) {
    this.#root = root;
    this.#context = context;
  }

  show(id) {
    this.#id = id;
    this.#finished = false;
    this.#outcome = h("p", { class: "faint" });
    const panel = this.#root;
    this.#parts = this.#makeParts();
    panel.replaceChildren(...Object.values(this.#parts));
    panel.querySelector("h2").focus();
    this.resume();
  }

  /** Ends the stream of events; `resume` goes on where it ended. */
  pause() {
    this.#stream?.close();
    this.#stream = null;
  }

  resume() {
    if (this.#id === null || this.#finished || this.#stream) return;
    this.refresh();
    const last = this.#parts.events.dataset.last;
    this.#stream = new EventStream(`v1/delegations/${this.#id}/events?lines=true&after=${last}`, {
      onEvent: (event) => this.#hear(event),
      onRefused: (error) => setText(this.#parts.state, visible(error.message)),
    });
  }

  async refresh() {
    const id = this.#id;
    try {
      const delegation = await get(`v1/delegations/${id}`);
      if (id === this.#id) this.#fill(delegation);
    } catch (error) {
      if (id === this.#id) setText(this.#parts.state, visible(error.message));
    }
  }

  #makeParts() {
    return {
      head: h("header", {}, h("h2", { id: "run-title", tabindex: "-1" }, "…"),
        h("a", { href: "#", class: "quiet close" }, "Close")),
      state: h("p", { class: "meta" }),
      message: h("div", {}),
      result: h("div", { class: "result" }),
      request: h("div", {}),
      title: h("h3", { id: "events-title" }, "Events"),
      events: h("ol", { class: "events", "data-last": "0", "aria-labelledby": "events-title", tabindex: "0" }),
    };
  }

  #fill(delegation) {
    const { head, state, request } = this.#parts;
    const { turns, cost, age } = facts(delegation);
    const asked = delegation.request;
    setText(head.querySelector("h2"), cut(asked.task, 120));
    state.replaceChildren(
      h("span", { class: `badge ${SIGNS[delegation.status] ? delegation.status : ""}` }, statusText(delegation)),
      ...[delegation.id, turns, cost, age].map((text) => h("span", { class: "faint" }, visible(text))));
    if (!request.hasChildNodes()) {
      const rest = Object.fromEntries(Object.entries(asked).filter(([name]) => name !== "task"));
      request.append(folded("Request", [block("Task", visibleBlock(asked.task)), block("Request", visibleJson(rest))]));
    }
    if (this.#message) this.#message.update(delegation);
    else {
      this.#message = actionsFor(delegation, this.#context);
      this.#parts.message.append(this.#message);
    }
    if (delegation.result) this.#showResult(delegation);
  }

  #showResult({ result, request }) {
    const workspace = request.workspace.kind !== "empty";
    const part = this.#parts.result;
    if (part.hasChildNodes()) return;
    part.append(h("h3", {}, "Result"), this.#outcome, h("div", { class: "summary" }, visibleBlock(result.summary)));
    if (workspace && !result.fileChanges.length && !result.truncated) {
      part.append(h("p", { class: "faint" }, "No files changed."));
    }
    // Where it succeeded, it went on without the calls that failed: their errors are the last ones.
    const calls = result.success ? Math.min(result.failedCallCount, MOST_CALL_ERRORS + 1) : 0;
    const trouble = result.errors.slice(0, result.errors.length - calls);
    if (trouble.length) part.append(h("ul", { class: "problem" }, trouble.map((error) => h("li", {}, visible(error)))));
    if (result.verification.verdict !== "unverified") part.append(verdictView(result.verification));
    if (result.git?.commit) {
      const where = [result.git.branch, result.git.pullRequestUrl].filter(Boolean).join(", ");
      part.append(h("p", { class: "delivered" }, "Delivered as ", h("code", {}, visible(where))));
    }
    if (result.output !== null) part.append(block("Output", visibleJson(result.output)));
    if (result.fileChanges.length) part.append(this.#changes(result));
  }

  #changes(result) {
    const amount = (each) => ` ${visible(each.change)} (+${each.addedLines} −${each.removedLines})`;
    const lines = result.fileChanges.map((each) => h("li", {}, h("code", {}, visible(each.path)), amount(each)));
    const id = this.#id;
    const load = async (event) => {
      const fold = event.currentTarget;
      if (!fold.open || fold.querySelector("pre")) return;
      try {
        fold.append(diffView(await (await open(`v1/delegations/${id}/patch`)).text()));
      } catch (error) {
        fold.append(h("p", { class: "problem" }, visible(error.message)));
      }
    };
    return h("div", {}, h("ul", { class: "changes", "aria-label": "Changed files" }, lines),
      folded("Patch", null, { ontoggle: load }));
  }

  /** Returns whether it was the last event. */
  #hear(event) {
    const { events } = this.#parts;
    if (event.seq) events.dataset.last = String(event.seq);
    const text = event.type === "replied" ? cut(event.text, 2000) : visible(event.line);
    if (event.type === "text_delta") this.#appendLive(event);
    else if (text) this.#append(event, text);
    this.#finished = event.type === "run_finished";
    if (this.#finished) setText(this.#outcome, text);
    if (/^(run_|waiting|resumed_waiting|turn_started)/u.test(event.type)) this.refresh();
    return this.#finished;
  }

  #append(event, text) {
    const { events } = this.#parts;
    const follows = events.scrollTop + events.clientHeight >= events.scrollHeight - 8;
    if (event.type === "replied") events.querySelector(".live")?.remove();
    // The end of a step takes the place of its beginning, at the time of the end.
    if (event.step) events.querySelector(`[data-step="${CSS.escape(event.step.id)}"]`)?.remove();
    const line = h("li", { class: event.type, ...(event.step && { "data-step": event.step.id }) },
      h("time", { class: "faint", datetime: event.at }, new Date(event.at).toLocaleTimeString()), h("span", {}, text));
    if (event.step?.result) line.append(folded("Result", block("Result", visibleBlock(event.step.result))));
    events.append(line);
    while (events.children.length > MOST_LINES) events.firstElementChild.remove();
    if (follows) events.scrollTop = events.scrollHeight;
  }

  /** The model's words as they come; `replied` has them all. */
  #appendLive(event) {
    const { events } = this.#parts;
    let live = events.querySelector(".live");
    if (!live) {
      live = h("li", { class: "live" }, h("span", { class: "faint" }, "writes"), h("span", {}));
      events.append(live);
    }
    live.lastElementChild.textContent = (live.lastElementChild.textContent + visibleBlock(event.text)).slice(-2000);
  }
}
