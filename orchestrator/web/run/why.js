// Why: from the end of a run, a failed check or a changed file back to the step and the turn that caused it.

const MOST = 5;
const FAILED_TESTS = ["failed", "missing", "skipped", "removed", "unsteady"];
const LIMITS = { max_turns: "maxTurns", max_tool_calls: "maxToolCalls", timeout: "timeoutSeconds" };

/** `{text, key}`: a sentence, and the node that it is about, if there is one. */
const cause = (text, node = null) => ({ text, key: node?.key ?? null });

const lasted = (node) => (node.end ?? node.start) - node.start;
const highest = (nodes, value) => nodes.toSorted((one, other) => value(other) - value(one)).slice(0, MOST);
const turnOf = (node) => (node.kind === "turn" ? node : node.parent && turnOf(node.parent));

function* all(nodes) {
  for (const node of nodes) {
    yield node;
    yield* all(node.children);
  }
}

/** The turn of a node, with what the model intended in it. */
function turnCause(node) {
  const turn = node && turnOf(node);
  if (!turn) return [];
  const words = (turn.words || turn.thinking || "").trim().split("\n")[0];
  return [cause(words ? `${turn.title}: “${words}”` : turn.title, turn)];
}

const ofStep = (text, node) => [cause(text, node), ...turnCause(node)];

/** Why the run ended as it did, the reason first. `say` formats `{ms, usd}`. */
export function whyEnded(tree, say) {
  const { result } = tree;
  const reason = result.terminationReason;
  const [turn, step] = [tree.turns.at(-1), tree.steps.at(-1)];
  const nodes = [...all(tree.nodes)];
  const last = turn ? turnCause(turn) : [];
  switch (reason) {
    case "completed": {
      const refuted = result.verification.checks.flatMap(({ outcome, why }, index) =>
        ["refuted", "tampered"].includes(outcome) ? [cause(`Check ${index + 1} ${outcome}: ${why}`,
          nodes.findLast((each) => each.kind === "check" && each.event.check === index))] : []);
      return [cause(refuted.length ? "The model ended its work, but a check refutes it" :
        "The model ended its work: its last reply has no more calls", turn), ...refuted, ...last];
    }
    case "max_turns": case "max_tool_calls": case "timeout": {
      const limit = tree.limits?.[LIMITS[reason]];
      const head = cause(`The limit ${LIMITS[reason]}${limit ? ` of ${limit}` : ""} was reached`, step ?? turn);
      if (reason !== "timeout") return [head, ...repeated(tree), ...last];
      const slow = highest(nodes.filter((each) => ["step", "wait", "retry"].includes(each.kind)), lasted);
      return [head, ...slow.map((each) => cause(`${say.ms(lasted(each))}: ${each.title}`, each)), ...last];
    }
    case "budget": {
      const dear = highest(tree.turns.filter((each) => each.cost > 0), (each) => each.cost);
      return [cause("The budget of tokens or dollars was used up", turn),
        ...dear.map((each) => cause(`${say.usd(each.cost)}: ${each.title}`, each))];
    }
    case "loop_detected":
      return [cause("The model repeated the same calls", step), ...repeated(tree), ...last];
    case "cancelled": case "wrapped_up": {
      const asked = nodes.find((each) => each.event?.type === "wrap_up_requested");
      const head = reason === "cancelled" ? "It was cancelled" : "It was asked to wrap up";
      return [cause(head, step ?? turn), ...(asked ? [cause(asked.title, asked)] : []), ...last];
    }
    case "refused":
      return [cause(`The model refused${turn?.reply ? ` (${turn.reply.stopReason})` : ""}`, turn), ...last];
    default: {
      const trouble = nodes.filter((each) => each.kind === "retry" || (each.kind === "note" && each.state === "bad"));
      const causes = trouble.slice(-MOST).map((each) => cause(`${each.title}. ${each.detail}`.trim(), each));
      return [cause(result.errors[0] ?? `It ended with ${reason}`, trouble.at(-1) ?? turn), ...causes, ...last];
    }
  }
}

/** The calls that were made most often in the same way, and the ones that failed most recently. */
function repeated(tree) {
  const groups = Object.values(Object.groupBy(tree.steps, ({ title }) => title)).filter((each) => each.length > 1);
  const failed = tree.steps.filter((each) => each.state === "bad").slice(-2);
  return [
    ...highest(groups, (each) => each.length)
      .map((each) => cause(`${each.length} times: ${each[0].title}`, each.at(-1))),
    ...failed.map((each) => cause(`Failed: ${each.title}: ${each.detail}`, each)),
  ];
}

const touches = (node, path) => node.step.changes?.some((each) => each.path === path || each.from === path);

/** Why a file is as it is: the steps that changed it, the last one first, each with its turn. */
export function whyChanged(tree, path, from = null) {
  const steps = tree.steps.filter((each) => touches(each, path) || (from && touches(each, from))).reverse();
  if (steps.length) {
    const words = (each, at) => `${at ? "Changed" : "Last changed"} by ${each.title}`;
    return steps.slice(0, MOST).flatMap((each, at) => ofStep(words(each, at), each));
  }
  const more = tree.steps.findLast((each) => each.step.moreChanges);
  return more ? ofStep(`One of the ${more.step.moreChanges} further changes of ${more.title}, perhaps`, more) :
    [cause("No step's events have this change; a command in the background may have made it")];
}

/** The changed files that a check names in its output, tests or paths; all of them where it names none. */
function suspects(check, changes) {
  const { item, outputTail, tests = {} } = check;
  const text = [outputTail, item.path, item.paths, item.run, ...Object.values(tests)].flat().filter(Boolean).join("\n");
  const name = (path) => path.split("/").at(-1);
  const named = changes.filter(({ path }) => text.includes(name(path)));
  return named.length ? named : changes;
}

/** Why a check ended as it did: its tests, the files it is about, and the steps that changed them last. */
export function whyChecked(tree, index) {
  const { result } = tree;
  const check = result.verification.checks[index];
  const node = [...all(tree.nodes)].findLast((each) => each.kind === "check" && each.event.check === index &&
    each.event.on === "candidate");
  const tests = FAILED_TESTS.flatMap((kind) =>
    (check.tests?.[kind] ?? []).slice(0, MOST).map((name) => cause(`${kind}: ${name}`)));
  const files = suspects(check, result.fileChanges).slice(0, MOST).flatMap(({ path, from }) => {
    const [last, turn] = whyChanged(tree, path, from);
    return [{ ...last, text: `${path}: ${last.text}` }, ...(turn ? [turn] : [])];
  });
  const none = result.fileChanges.length ? [] : [cause("The run changed no file")];
  return [cause(`${check.outcome.replace("_", " ")}: ${check.why}`, node), ...tests, ...files, ...none];
}
