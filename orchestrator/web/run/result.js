// The result of a delegation: why it ended, summary, verdict, checks with their evidence, files, artifacts.

import { open } from "../api.js";
import { verdictClass } from "../delegations.js";
import { block, diffView, folded } from "../details.js";
import { h } from "../dom.js";
import { number } from "../numbers.js";
import { count, size, visible, visibleBlock, visibleJson } from "../text.js";
import { attemptsView } from "./attempts.js";
import { button, changed, code, div, download, list, prose, span, text } from "./elements.js";
import { proofButtons } from "./proof.js";

const MOST_CALL_ERRORS = 50;
const MOST_FILES = 200;
const MOST_LINES = 3000;
const GROUNDS = { base: "before", candidate: "after", canary: "with something broken" };

const badge = (word) => span(`badge ${verdictClass(word)}`, visible(word.replaceAll("_", " ")));
const why = (about, onclick) => button("Why?", onclick, { class: "why quiet", "aria-label": `Why? ${visible(about)}` });
const section = (title, buttons, ...children) =>
  h("section", {}, div("flow", h("h3", {}, title), buttons), children);

function checkView(check, index, explain) {
  const { item, tests = {} } = check;
  const grounds = Object.keys(GROUNDS).filter((each) => check[each]);
  const names = Object.entries(tests).map(([kind, all]) => text("", `${visible(kind)}: `, all.map(code)));
  return div("check",
    div("flow", badge(check.outcome), code(item.run ?? item.path ?? (item.paths ?? []).join(", ")),
      why(`check ${index + 1}`, () => explain.check(index))),
    text("", visible(check.why)),
    text("faint meta", grounds.map((each) => span("", `${GROUNDS[each]}: ${visible(check[each])}`)),
      check.exitCode !== null && span("", `exit code ${check.exitCode}`)),
    (names.length > 0 || check.outputTail) && folded("Evidence", [
      names, check.outputTail && block("Output of the check", visibleBlock(check.outputTail))]));
}

function verdictView(id, { verdict, why: reason, checks, restored, released = [], rounds }, explain) {
  const notes = [restored.length && `checked as they were before the run: ${restored.join(", ")}`,
    released.length && `seen with the run's changes, which leave the tests as they were: ${released.join(", ")}`,
    rounds && `sent back to the model ${count(rounds, "time")}`].filter(Boolean);
  const buttons = verdict === "verified" && proofButtons(id);
  return section(["Verdict ", badge(verdict)], buttons, reason && text("", visible(reason)),
    notes.length > 0 && text("faint", visible(notes.join("; "))),
    list("Checks", "checks", checks.map((each, index) => checkView(each, index, explain))));
}

const claimView = ({ verdict, claim, evidence }, explain) => div("flow",
  badge(verdict), span("", `“${visible(claim)}”`),
  evidence && button("its step", () => explain.step(evidence), { class: "link" }));

/** The diffs of a patch, by path. */
function filesOf(patch) {
  const names = [/^\+\+\+ "?b\/(?<path>.*?)"?\t?$/mu, /^rename to (?<path>.*)$/mu, /^--- "?a\/(?<path>.*?)"?\t?$/mu,
    /^diff --git "?a\/.* "?b\/(?<path>.*?)"?$/mu];
  const parts = patch.split(/^(?=diff --git )/mu).filter((each) => each.startsWith("diff --git "));
  return new Map(parts.map((each) => [names.map((name) => name.exec(each)).find(Boolean)?.groups.path ?? "", each]));
}

/** The changed files: each opens to its diff. The patch is loaded once for all. */
function changesView(id, { fileChanges, leftOut }, explain) {
  let loading = null;
  const load = async () => filesOf(await (await open(`v1/delegations/${id}/patch`)).text());
  const fileView = (each) => {
    const show = async () => {
      if (!fold.open || fold.childElementCount > 1) return;
      const none = "The patch does not have it.";
      const diff = await (loading ??= load()).then((files) => files.get(each.path) ?? none, (error) => error.message);
      fold.append(diff.startsWith("diff ") ? diffView(diff, MOST_LINES) : text("faint", visible(diff)));
    };
    const fold = folded(changed(each, each.addedLines, each.removedLines), null, { ontoggle: show });
    return div("flow", fold, why(each.path, () => explain.file(each)));
  };
  const more = fileChanges.length - MOST_FILES;
  return section(["Changed files ", span("faint", number(fileChanges.length))],
    download(`v1/delegations/${id}/patch`, `${id}.patch`, "Download the patch"),
    list("Changed files", "files", fileChanges.slice(0, MOST_FILES).map(fileView)),
    more > 0 && text("faint", `and ${number(more)} more, which the patch has`),
    leftOut.map((each) => text("faint", visible(each))));
}

/** `explain` has `end()`, `check(index)`, `file(change)` and `step(id)`, which show why. */
export function resultView({ result, id, request }, explain) {
  // Where it succeeded or wrapped up, it went on without the calls that failed: their errors are the last ones.
  const wentOn = result.success || result.terminationReason === "wrapped_up";
  const calls = wentOn ? Math.min(result.failedCallCount, MOST_CALL_ERRORS + 1) : 0;
  const trouble = result.errors.slice(0, result.errors.length - calls);
  const reason = visible(result.terminationReason.replaceAll("_", " "));
  const { deniedCallCount: denied, recoveredCallCount: recovered = 0 } = result;
  const failed = result.failedCallCount - denied - recovered;
  const notes = [denied && `${count(denied, "call")} denied`,
    result.success && recovered > 0 && `${count(recovered, "step")} failed, then recovered`,
    result.success && failed > 0 && `${count(failed, "step")} failed`].filter(Boolean);
  const { undelivered, output, outputStatus, verification: { verdict, claims } } = result;
  const delivered = result.git?.commit && [result.git.branch, result.git.pullRequestUrl].filter(Boolean).join(", ");
  const artifact = ({ name, version, size: bytes }) => div("flow",
    code(name), span("faint", `${size(bytes)}, version ${version}`),
    download(`v1/delegations/${id}/artifacts/${encodeURIComponent(name)}`, name));
  const instruction = ({ path, sha256 }) => div("flow", code(path), span("faint", `SHA-256 ${sha256.slice(0, 12)}`));
  return [
    section(["Result ", span("faint", reason)], why(`it ended, ${reason}`, explain.end),
      notes.length > 0 && text("faint", notes.join(", ")),
      trouble.length > 0 && list("Errors", "problem errors", trouble.map(visibleBlock)),
      // What failed without words of the model has its error as the summary.
      !trouble.includes(result.summary) && [result.summary && h("h4", {}, "The agent's summary"),
        div("summary", result.summary ? prose(result.summary) : text("faint", "It wrote no summary."))],
      delivered && text("delivered", "Delivered as ", code(delivered)),
      undelivered.length > 0 && text("problem faint", `${count(undelivered.length, "message")} came too late.`)),
    result.tournament && attemptsView(result.tournament),
    verdict !== "unverified" && verdictView(id, result.verification, explain),
    claims.length > 0 &&
      section("Claims of the summary", null, list("Claims", "claims", claims.map((each) => claimView(each, explain)))),
    output !== null &&
      section(["Output ", span("faint", visible(outputStatus))], null, block("Output", visibleJson(output))),
    result.fileChanges.length > 0 ? changesView(id, result, explain) :
      request.workspace.kind !== "empty" && !result.truncated && text("faint", "No files changed."),
    result.instructions?.length > 0 &&
      section("Instructions of the project", null, list("Instructions", "files", result.instructions.map(instruction))),
    result.artifacts.length > 0 &&
      section("Artifacts", null, list("Artifacts", "files", result.artifacts.map(artifact))),
  ];
}
