// Delegations as the service lists them, kept up to date by its events; their tree, and what a subtree has taken.

import { serviceNow } from "./api.js";
import { age, duration, money, tokensIn } from "./numbers.js";
import { count, cut, visible } from "./text.js";

export const SIGNS = { queued: "○", running: "▶", waiting: "‖", succeeded: "✓", failed: "✗", cancelled: "–" };
export const STATUSES = Object.keys(SIGNS);
const FINISHED = new Set(["succeeded", "failed", "cancelled"]);

export const isFinished = ({ status }) => FINISHED.has(status);
export const isId = (text) => /^dlg_[0-9a-z]{26}$/u.test(text);
export const statusText = ({ status, paused }) =>
  paused ? "‖ paused" : `${SIGNS[status] ?? ""} ${visible(status)}`.trim();
export const statusClass = ({ status, paused }) => (paused ? "waiting" : SIGNS[status] ? status : "");
/** One line of a text that may be megabytes. */
export const inShort = (text, width) => cut(String(text ?? "").slice(0, 8 * width), width);
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

/** What an event changes in a delegation: its status, its progress, and `now`, what it does in a few words. */
const CHANGES = {
  run_started: (item, { at, worker }) => ({ status: "running", startedAt: item.startedAt ?? at, worker }),
  run_resumed: (item, { worker }) => ({ status: "running", worker, paused: false }),
  run_retried: () => ({ status: "queued", now: "is tried again" }),
  turn_started: ({ progress }, { turn }) => ({ status: "running", progress: { ...progress, turn } }),
  replied({ progress, intent }, { text, usage }) {
    const before = progress.costUsd ?? (progress.turn <= 1 ? 0 : null);
    const known = typeof before === "number" && typeof usage.costUsd === "number";
    const costUsd = known ? before + usage.costUsd : null;
    return { intent: text.trim().slice(0, 400) || intent, progress: { ...progress, costUsd } };
  },
  step_started: (_, { step }) => ({ status: "running", now: step.title }),
  step_completed: ({ progress }, { step }) =>
    ({ status: "running", now: step.title, progress: { ...progress, toolCalls: progress.toolCalls + 1 } }),
  permission_requested: (_, { step }) => ({ status: "waiting", now: `asks: ${step.title}` }),
  permission_answered: () => ({ status: "running" }),
  waiting: ({ now }, { why, detail }) => ({ status: "waiting", ...(why !== "permission" && { now: detail || now }) }),
  resumed_waiting: () => ({ status: "running" }),
  model_retried: (_, { error }) => ({ now: `asks the model again: ${error}` }),
  wrap_up_requested: () => ({ asked: "wraps up" }),
  run_finished: (_, { at, result }) => ({ status: result.status, finishedAt: at, result, asked: null, paused: false }),
};

const NOTHING = { turn: 0, toolCalls: 0, lastTool: null, lastStep: null, elapsedMs: 0, costUsd: 0 };

export class Delegations {
  #items = new Map();

  get(id) {
    return this.#items.get(id);
  }

  get all() {
    return [...this.#items.values()];
  }

  /** Takes lists of the service instead of what was known; what is known from events alone stays. */
  load(items) {
    const before = this.#items;
    this.#items = new Map();
    for (const item of items.toSorted((a, b) => (a.id < b.id ? 1 : -1))) {
      const { intent, now, asked } = before.get(item.id) ?? {};
      this.#items.set(item.id, { ...item, intent, now, asked: isFinished(item) ? null : asked });
    }
  }

  /** Takes a delegation that an action returned. */
  set(delegation) {
    this.load([...this.all.filter(({ id }) => id !== delegation.id), delegation]);
  }

  /** Notes what was asked of a delegation, until an event or a list corrects it. */
  note(id, asked) {
    const item = this.#items.get(id);
    if (item) this.#items.set(id, { ...item, asked });
  }

  /** Takes an event. Returns whether rows come, go or move by it; null where it changes nothing. */
  take(event) {
    const { type, delegationId: id, at } = event;
    if (type === "run_queued" && !this.#items.has(id)) {
      const request = { ...event.request, context: "" }; // it may be long, and no row shows it
      const item = { id, status: "queued", createdAt: at, request, progress: NOTHING, result: null };
      this.set({ waitsFor: [], pendingPermissions: [], effectiveLimits: event.request.limits, ...item });
      return true;
    }
    const item = this.#items.get(id);
    if (!item || !CHANGES[type] || isFinished(item)) return null;
    const changed = { ...item, ...CHANGES[type](item, event) };
    this.#items.set(id, changed);
    return changed.status !== item.status;
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
    time: sum(elapsed),
    tokens: sum(tokensOf),
    cost: items.some((item) => typeof costOf(item) === "number") ? sum(costOf) : null,
  };
}
