// What one node of the tree is about: a call with its arguments, output and diff; a turn; a wait with its reason.

import { block, diffView, folded, isEmpty } from "../details.js";
import { h } from "../dom.js";
import { duration, money, number } from "../numbers.js";
import { answerWords, clock, count, cut, shortId, visible, visibleBlock, visibleJson } from "../text.js";
import { button, changed, code, facts, list, prose, span, text, toNode } from "./elements.js";

const OUTCOMES = { good: "succeeded", bad: "failed", warn: "denied", live: "running" };
const BADGES = { ...OUTCOMES, warn: "waiting" };

const link = (id, words = shortId(id)) => h("a", { href: `#${id}` }, words);
const titled = (title, content) => [h("h4", {}, title), block(title, content)];

function argumentsOf({ arguments: given }) {
  const { command, ...rest } = given;
  const isCommand = typeof command === "string";
  const others = isCommand ? rest : given;
  return [
    isCommand && titled("Command", visibleBlock(command)),
    !isEmpty(others) && titled("Arguments", visibleJson(others)),
  ];
}

function permissionView({ event, answer }) {
  return [
    text("", event.reason && `Asked because ${visible(event.reason)}`, event.rule && ` (rule ${visible(event.rule)})`),
    event.path.length > 1 && text("", "Asked by the child ", link(event.path.at(-1))),
    answer ? text("", `It was ${answerWords(answer.outcome, answer.by)}. ${visible(answer.reason)}`) :
      text("problem faint", "It has no answer yet."),
    argumentsOf(event.step), event.details?.diff && diffView(event.details.diff),
  ];
}

const VIEWS = {
  step: ({ step, live }) => [
    step.description && text("", visible(step.description)),
    step.error && text("problem", visibleBlock(step.error)),
    argumentsOf(step),
    !isEmpty(live) && !step.result && titled("So far", visibleJson(live)),
    step.result && titled("Output", visibleBlock(step.result)),
    step.changes && [h("h4", {}, "Changes"), list("Files that the step changed", "files",
      step.changes.map((each) => changed(each, each.added, each.removed)))],
    step.moreChanges && text("faint", `and ${count(step.moreChanges, "more file")}`),
    step.diff && diffView(step.diff),
    step.thinking && folded("Thinking", prose(step.thinking)),
    step.toolAgentResult && folded("Result", block("Result of the child", visibleJson(step.toolAgentResult))),
  ],
  turn: ({ reply, words, thinking, children }) => [
    words && prose(words),
    thinking && folded("Thinking", prose(thinking), { open: !words }),
    children.length > 0 &&
      list("In this turn", "calls", children.map((each) => toNode(each.key, cut(each.title, 120)))),
    reply && facts([
      ["Input", number(reply.usage.inputTokens)], ["Cached", number(reply.usage.cacheReadTokens)],
      ["Written to cache", number(reply.usage.cacheWriteTokens)], ["Output", number(reply.usage.outputTokens)],
      ["Saved by the cache", reply.usage.cacheSavedUsd && money(reply.usage.cacheSavedUsd)],
      ["Cache missed", visible(reply.cacheMiss)], ["Stopped", visible(reply.stopReason)],
    ]),
  ],
  wait: (node) => (node.event.type === "permission_requested" ? permissionView(node) : [
    node.event.request?.after && list("Waits for", "files", node.event.request.after.map((each) =>
      [link(each.id), each.require === "verified" && " (verified)"])),
    text("", visibleBlock(node.detail)),
  ]),
  check: ({ event, detail }) =>
    [text("", detail), event.outputTail && titled("Output", visibleBlock(event.outputTail))],
  child: ({ delegation }) => [
    text("", link(delegation.id, "Open this delegation")), delegation.result && prose(delegation.result.summary)],
  retry: ({ detail }) => text("", visibleBlock(detail)),
  note: ({ title, detail, event }) => [
    text("", visibleBlock(event.text || event.message || event.reason || title)), text("", visible(detail)),
    event.git && titled("Delivered", visibleJson(event.git))],
};

/** All there is to know of a node. */
export function nodeView(node, now) {
  const ms = (node.end ?? now) - node.start;
  return [
    text("meta faint",
      node.step && [span(`badge ${BADGES[node.state] ?? ""}`, OUTCOMES[node.state]), code(node.step.toolName)],
      span("", clock(node.start)), ms > 0 && span("", `${duration(ms)}${node.end === null ? " so far" : ""}`),
      typeof node.cost === "number" && span("", money(node.cost))),
    VIEWS[node.kind](node),
  ];
}

/** Shows one node, or the causes of something, beside the tree. `goTo(key)` selects another node. */
export class Inspector {
  #shown = "";
  node = null;

  constructor({ goTo, onClose }) {
    this.title = h("h3", { tabindex: "-1" });
    this.body = h("div", { class: "inspector-body" });
    this.element = h("aside", { class: "inspector panel", hidden: true, "aria-label": "Details",
      onclick: (event) => goTo(event.target.closest("[data-goto]")?.dataset.goto),
      onkeydown: (event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        onClose();
      } }, h("header", {}, this.title, button("✕", onClose, { "aria-label": "Close the details" })), this.body);
  }

  show(node, now) {
    const before = this.node?.key;
    const version = `${node.key}.${node.version}`;
    this.node = node;
    if (this.#shown === version) return;
    const { scrollTop } = this.body;
    this.#fill(version, cut(node.title, 300), nodeView(node, now));
    if (before === node.key) this.body.scrollTop = scrollTop;
  }

  /** The chain of causes, each of which leads to its place in the tree. */
  explain(title, causes) {
    this.node = null;
    const line = ({ key, words }) => h("li", {}, key ? toNode(key, words) : span("", words));
    const lines = causes.map((each) => line({ key: each.key, words: cut(each.text, 400) }));
    this.#fill("", cut(title, 300), h("ol", { class: "causes" }, lines));
    this.title.focus();
  }

  #fill(version, title, content) {
    this.#shown = version;
    this.element.hidden = false;
    this.title.textContent = title;
    this.body.replaceChildren(...h("div", {}, content).childNodes);
    this.body.scrollTop = 0;
  }

  close() {
    this.element.hidden = true;
    this.#shown = "";
    this.node = null;
  }
}
