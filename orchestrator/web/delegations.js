// Delegations as the service lists them, kept up to date by its events; their tree, and what a subtree has taken.

import { serviceNow } from "./api.js";
import { age, duration, money, number, tokensIn } from "./numbers.js";
import { plain } from "./run/markdown.js";
import { count, cut, visible } from "./text.js";

const SIGNS = {
  asking: "?", running: "▶", waiting: "‖", queued: "○", succeeded: "✓", failed: "✗", cancelled: "–",
};
export const STATES = Object.keys(SIGNS);
const WORDS = { asking: "asks you" };
/** By the mark of a result: its sign, and the class that colours it. */
const MARKS = {
  ok: ["✓", "succeeded"], unproven: ["?", "waiting"], failed: ["✗", "failed"], cancelled: ["–", "cancelled"],
};
const VERDICTS = {
  verified: "succeeded", passed: "succeeded", evidence: "succeeded", no_regression: "succeeded", proved: "succeeded",
  improved: "waiting", inconclusive: "waiting", preexisting: "waiting", unproved: "waiting",
  refuted: "failed", tampered: "failed",
};
/** Why it ended, where the status does not show that. */
const ENDINGS = {
  completed: () => "", cancelled: () => "", error: () => "",
  max_turns: ({ turnCount }) => `${count(turnCount, "turn")} used`,
  max_tool_calls: ({ toolCallCount }) => `${count(toolCallCount, "call")} used`,
  timeout: () => "time used up", budget: () => "budget used up",
};
const FINISHED = new Set(["succeeded", "failed", "cancelled"]);

export const isFinished = ({ status }) => FINISHED.has(status);
export const isId = (text) => /^dlg_[0-9a-z]{26}$/u.test(text);
/** The status, or `asking` where one of its own calls waits for a person: others wait for children, or the model. */
export const stateOf = ({ id, status, pendingPermissions }) =>
  !FINISHED.has(status) && pendingPermissions?.some((each) => each.includes(id.slice(4))) ? "asking" : status;
/** A state in words. */
export const inWords = (state) => WORDS[state] ?? visible(state);
/** The word after the mark: the verdict of the checks of a completed run, else how it ended. */
function headline({ terminationReason, status, mark, verification: { verdict } }) {
  if (terminationReason !== "completed") return status;
  return verdict !== "unverified" ? verdict : mark === "unproven" ? mark : status;
}
/** Where it stands, the mark first; what an older service sent has none. */
export function stateText(item) {
  if (item.paused) return "‖ paused";
  const [sign] = MARKS[item.result?.mark] ?? [SIGNS[stateOf(item)] ?? ""];
  return `${sign} ${item.result ? visible(headline(item.result)) : inWords(stateOf(item))}`.trim();
}
export function stateClass(item) {
  if (item.paused) return "asking";
  return MARKS[item.result?.mark]?.[1] ?? (SIGNS[stateOf(item)] ? stateOf(item) : "");
}
/** One line of a text that may be megabytes. */
const inShort = (text, width) => cut(String(text ?? "").slice(0, 8 * width), width);
/** The first line of the task. */
export const titleOf = ({ request }) => inShort(request.task.trim().split("\n", 1)[0], 160);

/** Milliseconds of work, or since the start for one that is not finished; null before. */
export function elapsed({ startedAt, result }) {
  if (result) return result.executionTimeMs;
  return startedAt ? Math.max(0, serviceNow() - Date.parse(startedAt)) : null;
}

export const costOf = ({ progress, result }) => (result ? result.usage.costUsd : progress.costUsd);

const tokensOf = ({ result }) => (result ? tokensIn(result.usage) : 0);

/** What a delegation has taken: `3 turns`, `$0.0031`, `41s`, `5m ago`. */
export function facts(delegation) {
  const { progress, result, createdAt } = delegation;
  const time = elapsed(delegation);
  return {
    turns: count(result ? result.turnCount : progress.turn, "turn"),
    time: time === null ? "" : duration(time),
    cost: money(costOf(delegation)),
    age: age(Date.parse(createdAt), serviceNow()),
  };
}

export const childrenOf = (amount) => `${number(amount)} ${amount === 1 ? "child" : "children"}`;

/**
 * One line: what it does, and why; of a finished one its outcome. `open`: how many children are not finished;
 * `hold`: why none can begin.
 */
export function nowText(item, open, hold = "") {
  if (item.asked) return item.asked;
  if (item.result) return outcomeText(item.result, item.reason);
  if (item.waitsFor?.length) return `waits for ${count(item.waitsFor.length, "delegation")}`;
  if (item.status === "queued" && hold) return hold;
  const asks = stateOf(item) === "asking" ? "asks for permission" : null;
  const waits = item.status === "waiting" && open ? `waits for ${childrenOf(open)}` : null;
  const now = asks ? item.now ?? asks : waits ?? item.now ?? item.progress.lastStep ?? item.progress.lastTool ?? "";
  return [now, plain(item.intent ?? "")].filter(Boolean).map((each) => inShort(each, 140)).join(" — ");
}

/** The class of a badge by what a check, a claim or all of them showed. */
export const verdictClass = (word) => VERDICTS[word] ?? "";

/** What the checks and the run's own steps showed, beside the state, as badges: `[text, class]`. */
export function badgesOf({ result }) {
  const { verdict = "unverified", claims = [] } = result?.verification ?? {};
  const refuted = claims.filter((each) => each.verdict === "refuted").length;
  return [!["unverified", result && headline(result)].includes(verdict) && [verdict, verdictClass(verdict)],
    refuted > 0 && [`${count(refuted, "claim")} refuted`, verdictClass("refuted")]].filter(Boolean);
}

/** Facts before words: the `reason` of its place, why it ended, what was denied, why it is not proved, the summary. */
function outcomeText(result, reason) {
  const { terminationReason: ending, verification, deniedCallCount, summary, errors, mark } = result;
  const { why, checks } = verification;
  const ended = ending in ENDINGS ? ENDINGS[ending](result) : ending.replaceAll("_", " ");
  const expired = errors.some((each) => each.includes("no one answered within")) && "permission expired";
  const denied = !reason && deniedCallCount > 0 && `${count(deniedCallCount, "call")} denied`;
  const unproved = mark !== "ok" &&
    (why || checks.find(({ outcome }) => verdictClass(outcome) !== "succeeded")?.why);
  return [reason, ended, expired, denied, unproved, plain(summary || errors.at(-1) || "")].filter(Boolean)
    .map((each) => inShort(each, 200)).join(" — ");
}

/** What an event changes in a delegation besides its `state`, which the service sends with each event. */
const CHANGES = {
  run_started: (item, { at, worker, attempt }) => ({ startedAt: item.startedAt ?? at, worker, attempt }),
  run_resumed: (_, { worker, attempt }) => ({ worker, attempt, paused: false }),
  turn_started: ({ progress }, { turn }) => ({ progress: { ...progress, turn } }),
  replied({ progress, intent }, { text, usage }) {
    const before = progress.costUsd ?? (progress.turn <= 1 ? 0 : null);
    const known = typeof before === "number" && typeof usage.costUsd === "number";
    const costUsd = known ? before + usage.costUsd : null;
    return { intent: text.trim().slice(0, 400) || intent, progress: { ...progress, costUsd } };
  },
  step_completed: ({ progress }) => ({ progress: { ...progress, toolCalls: progress.toolCalls + 1 } }),
  permission_requested: ({ pendingPermissions }, { permissionId }) =>
    ({ pendingPermissions: [...pendingPermissions ?? [], permissionId] }),
  permission_answered: ({ pendingPermissions }, { permissionId }) =>
    ({ pendingPermissions: pendingPermissions?.filter((each) => each !== permissionId) }),
  wrap_up_requested: () => ({ asked: "wraps up" }),
  run_finished: (_, { at, result }) => ({
    status: result.status, finishedAt: at, result, asked: null, paused: false, pendingPermissions: [],
  }),
};

const NOTHING = { turn: 0, toolCalls: 0, lastTool: null, lastStep: null, elapsedMs: 0, costUsd: 0 };

export class Delegations {
  /** Why none of those that are queued can begin, or "". */
  hold = "";
  #items = new Map();
  #heard = new Set();

  get(id) {
    return this.#items.get(id);
  }

  get all() {
    return [...this.#items.values()];
  }

  /**
   * Takes the lists that `ask` gets from the service instead of what was known; what is known from events alone stays.
   * So does a delegation of which an event came meanwhile: the lists may have been made before that.
   */
  async load(ask) {
    this.#heard.clear();
    const listed = new Map((await ask()).map((item) => [item.id, item]));
    for (const id of this.#heard) listed.set(id, this.#items.get(id));
    this.#replace([...listed.values()]);
  }

  /** Takes a delegation that an action returned. */
  set(delegation) {
    this.#replace([...this.all.filter(({ id }) => id !== delegation.id), delegation]);
  }

  #replace(items) {
    const before = this.#items;
    this.#items = new Map();
    for (const item of items.toSorted((a, b) => (a.id < b.id ? 1 : -1))) {
      const { intent, now, asked } = before.get(item.id) ?? {};
      this.#items.set(item.id, { ...item, intent, now, asked: isFinished(item) ? null : asked });
    }
  }

  /** Notes what was asked of a delegation, until an event or a list corrects it. */
  note(id, asked) {
    const item = this.#items.get(id);
    if (item) this.#items.set(id, { ...item, asked });
  }

  /** Takes an event. Returns whether rows come, go or move by it; null where it changes nothing. */
  take(event) {
    const { type, delegationId: id, at, state } = event;
    if (type === "run_queued" && !this.#items.has(id)) {
      const request = { ...event.request, context: "" }; // it may be long, and no row shows it
      const item = { id, status: "queued", createdAt: at, request, progress: NOTHING, result: null, ...state };
      this.#heard.add(id);
      this.set({ waitsFor: [], pendingPermissions: [], effectiveLimits: event.request.limits, ...item });
      return true;
    }
    const item = this.#items.get(id);
    if (!item || !(state || CHANGES[type]) || isFinished(item)) return null;
    const changed = { ...item, ...state, ...CHANGES[type]?.(item, event) };
    this.#items.set(id, changed);
    this.#heard.add(id);
    return stateOf(changed) !== stateOf(item);
  }

  /** The delegations that `wanted` accepts, as trees: `{item, children, below}`; those of missing parents are roots. */
  trees(wanted) {
    const nodes = new Map();
    for (const item of this.all) if (wanted(item)) nodes.set(item.id, { item, children: [] });
    const roots = [];
    for (const node of nodes.values()) {
      const parent = nodes.get(node.item.request.parentId);
      (parent && parent !== node ? parent.children : roots).push(node);
    }
    roots.forEach(addUp);
    return roots;
  }
}

/** What the children of a node have taken, each with its own children; whether anything of it is not finished. */
function addUp(node) {
  node.children.forEach(addUp);
  const items = node.children.map(({ item }) => item);
  const sum = (of) => items.reduce((total, item) => total + (of(item) ?? 0), 0);
  node.active = [node.item, ...items].some((item) => !isFinished(item)) || node.children.some(({ active }) => active);
  node.below = {
    count: node.children.length + node.children.reduce((total, { below }) => total + below.count, 0),
    open: items.filter((item) => !isFinished(item)).length,
    unfinished: node.children.reduce((total, { item, below }) => total + !isFinished(item) + below.unfinished, 0),
    time: sum(elapsed),
    tokens: sum(tokensOf),
    cost: items.some((item) => typeof costOf(item) === "number") ? sum(costOf) : null,
  };
}
