// The attempts at a task side by side: the verdict of each, its cost, and its changes when it is opened.

import { open } from "../api.js";
import { verdictClass } from "../delegations.js";
import { diffView, folded } from "../details.js";
import { h } from "../dom.js";
import { money, number } from "../numbers.js";
import { shortId, visible } from "../text.js";
import { list, span, text } from "./elements.js";

const MOST_LINES = 3000;

function attemptView(attempt, index, { taken, winner }) {
  const { id, verdict, ending, addedLines: added, removedLines: removed, costUsd: cost } = attempt;
  const show = async () => {
    if (!fold.open || fold.childElementCount > 1) return;
    const patch = await open(`v1/delegations/${id}/patch`).then((answer) => answer.text(), (error) => error.message);
    const isDiff = patch.startsWith("diff ");
    fold.append(isDiff ? diffView(patch, MOST_LINES) : text("faint", visible(patch || "No changes.")));
  };
  const place = { [taken]: " is taken", [winner]: " wins" }[id] ?? "";
  const title = [span(`badge ${verdictClass(verdict)}`, visible(verdict)), ` attempt ${index + 1}${place} `,
    span("counts", span("plus", `+${number(added)}`), " ", span("minus", `−${number(removed)}`)),
    cost === null ? "" : ` ${money(cost)}`, ` ${visible(ending)}`];
  const fold = folded(title, null, { ontoggle: show });
  return h("div", { class: "flow" }, fold, h("a", { href: `#${id}` }, shortId(id)));
}

/** The section about the attempts of a result. */
export function attemptsView(facts) {
  const passed = `${number(facts.passed)} of ${number(facts.of)} passed`;
  return h("section", {}, h("h3", {}, "Attempts ", span("faint", passed)),
    list("Attempts", "files", facts.attempts.map((each, index) => attemptView(each, index, facts))));
}
