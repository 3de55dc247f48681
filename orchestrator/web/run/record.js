// What is read rather than watched: the transcript, the usage of each model call, the request.

import { block, diffView, folded } from "../details.js";
import { h } from "../dom.js";
import { money, number } from "../numbers.js";
import { clock, percent, visible, visibleBlock, visibleJson } from "../text.js";
import { button, div, prose, span, text, toNode } from "./elements.js";
import { signOf } from "./timeline.js";

const AT_ONCE = 40;
const SHORT = 600;
const TOKENS = ["inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens"];
const HEAD = ["Call", "Input", "Cached", "Written to cache", "Output", "Share cached", "Cost", "Saved", "Why missed"];

function long(label, given) {
  const content = block(label, visibleBlock(given));
  return given.length <= SHORT ? content : folded(`${label}, ${number(given.length)} characters`, content);
}

function entryView(node) {
  const { step } = node;
  if (node.kind === "turn") {
    return h("section", { class: "turn" }, h("h3", {}, node.title, span("faint", clock(node.start))),
      node.thinking && folded("Thinking", prose(node.thinking)), prose(node.words), node.children.map(entryView));
  }
  if (!step) return text(`between ${node.state}`, [node.title, node.detail].filter(Boolean).map(visible).join(": "));
  return div(`call step ${node.state}`, text("flow", span("sign", signOf(node)), h("strong", {}, visible(node.title))),
    step.error && text("problem", visibleBlock(step.error)), step.result && long("Output", step.result),
    step.diff && folded("Diff", diffView(step.diff)), node.children.map(entryView));
}

/** The conversation; more of it on demand. */
export function transcriptView({ request, nodes }) {
  let at = 0;
  const more = button("Show more", () => show());
  function show() {
    more.before(...nodes.slice(at, at + AT_ONCE).map(entryView));
    at += AT_ONCE;
    more.hidden = at >= nodes.length;
  }
  const { task, context, expectedOutcome } = request ?? {};
  const list = div("transcript", h("section", { class: "turn" }, h("h3", {}, "Task"), prose(task),
    context && [h("h4", {}, "Context"), long("Context", context)],
    expectedOutcome && [h("h4", {}, "Expected outcome"), long("Expected outcome", expectedOutcome)]), more);
  show();
  return list;
}

/** Unknown is not zero: where one amount of money is not known, nor is the sum. */
function sum(usages) {
  const plus = (one, other) => (one === null || other === null ? null : one + (other ?? 0));
  const add = (name) => usages.map((each) => each[name]).reduce(plus, 0);
  const total = Object.fromEntries([...TOKENS, "costUsd", "cacheSavedUsd"].map((name) => [name, add(name)]));
  const prompt = total.inputTokens + total.cacheReadTokens + total.cacheWriteTokens;
  return { ...total, cachedShare: prompt ? total.cacheReadTokens / prompt : null };
}

/** A row for each model call and child, the total last: that of the result where there is one, else what is known. */
export function usageView(tree, children) {
  const replies = tree.turns.filter(({ reply }) => reply).map(({ key, title, reply }) =>
    ({ name: toNode(key, title), usage: reply.usage, miss: reply.cacheMiss }));
  const below = children.filter(({ result }) => result).map(({ request, result }) =>
    ({ name: `Child: ${visible(request.task.slice(0, 80))}`, usage: result.usage }));
  const total = tree.result?.usage ?? sum([...replies, ...below].map(({ usage }) => usage));
  const { cacheSavedUsd: saved, costUsd: cost } = total;
  const line = ({ name, usage, miss }) => h("tr", {}, h("th", { scope: "row" }, name),
    TOKENS.map((each) => h("td", {}, number(usage[each]))), h("td", {}, percent(usage.cachedShare)),
    h("td", {}, money(usage.costUsd)), h("td", {}, money(usage.cacheSavedUsd)),
    h("td", { class: "words" }, visible(miss)));
  return div("usage",
    saved > 0 &&
      text("notice", `The prompt cache saved ${money(saved)}: without it, the price would be ${money(cost + saved)}.`),
    saved < 0 && text("notice", `The prompt cache cost ${money(-saved)} more than it saved.`),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Usage of model calls" }, h("table", {},
      h("thead", {}, h("tr", {}, HEAD.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, [...replies, ...below].map(line)), h("tfoot", {}, line({ name: "Total", usage: total })))));
}

export function requestView({ request, effectiveLimits }) {
  const { task, context, ...rest } = request;
  const part = (title, content) => content && [h("h3", {}, title), block(title, content)];
  return div("record", part("Task", visibleBlock(task)), part("Context", visibleBlock(context)),
    part("Limits", visibleJson(effectiveLimits)), part("Request", visibleJson(rest)));
}
