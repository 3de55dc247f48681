// The head of a delegation's view: where it stands, and its numbers; and beside the tree what the model does now.

import { elapsed, stateClass, stateText } from "../delegations.js";
import { h } from "../dom.js";
import { compact, duration, money, number, tokensIn } from "../numbers.js";
import { clock, cut, percent, shortId, visible } from "../text.js";
import { facts, prose, span, text } from "./elements.js";

const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** Where it belongs: the fleet, its parent, and what it continues or does again. */
export function crumbs({ request: { parentId, continues, retryOf } }) {
  const above = [[parentId, "Parent"], [continues, `continues ${shortId(continues)}`],
    [retryOf, `retry of ${shortId(retryOf)}`]].filter(([id]) => id);
  const link = (id, words) => h("a", { href: `#${id}` }, words);
  return [link("", "Fleet"), ...above.flatMap(([id, words]) => [" › ", link(id, words)])];
}

export function metaOf(delegation) {
  const { request, worker, id, createdAt } = delegation;
  const labels = Object.entries(request.labels).map((pair) => pair.join("="));
  const submitted = DATE.format(Date.parse(createdAt));
  const rest = [id, request.agent, request.model, worker, ...labels, submitted].filter(Boolean);
  const badge = span(`badge ${stateClass(delegation)}`, stateText(delegation));
  return [badge, ...rest.map((each) => span("faint", cut(each, 80)))];
}

/** What it has taken: until the end the record has no tokens. */
export function numbersOf(delegation) {
  const { result, progress, attempt } = delegation;
  const { usage } = result ?? {};
  const time = elapsed(delegation);
  const failed = result?.failedCallCount ? `, ${number(result.failedCallCount)} failed` : "";
  return facts([
    ["Time", time !== null && duration(time)],
    ["Turns", number(result?.turnCount ?? progress.turn)],
    ["Calls", `${number(result?.toolCallCount ?? progress.toolCalls)}${failed}`],
    ["Tokens", usage && compact(tokensIn(usage))], ["Cached", usage?.cachedShare && percent(usage.cachedShare)],
    ["Cost", money((usage ?? progress).costUsd)],
    ["Saved by the cache", usage?.cacheSavedUsd && money(usage.cacheSavedUsd)],
    ["Attempts", attempt > 1 && number(attempt)],
    ["Files", result?.fileChanges.length > 0 && `${number(result.fileChanges.length)} changed`],
  ]);
}

/** What happens at the end of a tree without a result; `hold`: why none can begin. */
export function workView({ turns, steps, request }, hold) {
  const turn = turns.at(-1);
  const open = steps.filter(({ end }) => end === null);
  return h("div", { class: "panel work" },
    h("h3", {}, turn ? [turn.title, span("faint", clock(turn.start))] : "Not begun yet"),
    !turn && hold && text("problem faint", hold),
    open.map((each) => text("", span("sign", "▸ "), cut(each.title, 200))),
    turn?.words ? prose(turn.words) : turn?.thinking ? [text("faint", "Thinking"), prose(turn.thinking)] :
      turn && !open.length && text("faint", "Waits for the model."),
    !turn && request && prose(request.task));
}
