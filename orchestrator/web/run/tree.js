// The events of one delegation as a tree: turns, in them steps and waits, beside them checks. Knows no document.

import { stateClass, stateText } from "../delegations.js";
import { answerWords, count } from "../text.js";
import { plain } from "./markdown.js";

const TRANSIENT_TEXT = 4000;
const LONGEST_CALL_ID = 180; // as in the idempotency keys of child delegations
const GROUNDS = { base: "before the run", candidate: "with the changes", canary: "with something broken" };
const WAITS = {
  permission: "Waits for permission", subagent: "Waits for a child", shared_prefix: "Waits for a cached prefix",
  batch: "Waits for a message batch",
  rate: "Waits for the model's endpoint", budget: "Waits for the budget",
};

const OF_RUN = new Set(["run_queued", "run_started", "run_resumed", "run_retried", "run_finished"]);
const OF_CALL = new Set([
  "step_started", "step_updated", "step_completed", "permission_requested", "permission_answered",
]);
const OF_REPLY = new Set(["turn_started", "text_delta", "thinking_delta", "replied", "model_retried"]);
const OF_WAIT = new Set(["waiting", "resumed_waiting"]);

const NO_REPLY = { reply: null, words: "", thinking: "" };
const isOver = (turn) => turn.reply !== null && turn.reply.toolCalls.length === 0;

/**
 * A node has `key`, `kind` (turn, step, wait, retry, check, note, child), `title`, `detail`, `state` (live, good, bad,
 * warn, idle), `start` and `end` (ms; `end` null: it goes on), `children`, `parent`, `version`, and by its kind `step`,
 * `reply`, `event`, `delegation`.
 */
export class Tree {
  nodes = [];
  steps = [];
  turns = [];
  request = null;
  limits = null;
  result = null;
  begun = null;
  start = null;
  last = null;
  stepsById = new Map();
  #turnsByNumber = new Map();
  #asked = new Map();
  #messages = new Map();
  #waiting = null;
  #turn = null;
  #queue = null;
  #number = 0;
  #prefix;

  /** `prefix` makes the keys of several trees distinct. */
  constructor(prefix = "") {
    this.#prefix = prefix;
  }

  add(event) {
    const at = Date.parse(event.at);
    const before = this.last ?? at;
    this.start ??= at;
    this.last = Math.max(before, at);
    if (OF_RUN.has(event.type)) this.#run(event, at, before);
    else if (OF_CALL.has(event.type)) this.#call(event, at);
    else if (OF_REPLY.has(event.type)) this.#reply(event, at);
    else if (OF_WAIT.has(event.type)) this.#wait(event, at);
    else this.#other(event, at, before);
  }

  /** Hangs a child delegation below the call that submitted it, else beside the turns. */
  attach(delegation, id) {
    const keyOf = ({ step }) => `${id}:${step.turnIndex}:${step.id.slice(0, LONGEST_CALL_ID)}`;
    const caller = this.steps.find((each) => keyOf(each) === delegation.request.idempotencyKey);
    const siblings = caller?.children ?? this.nodes;
    const stray = caller ? this.nodes.findIndex(({ key }) => key === delegation.id) : -1; // known before its call
    if (stray >= 0) siblings.push(Object.assign(this.nodes.splice(stray, 1)[0], { parent: caller }));
    const finished = delegation.finishedAt && Date.parse(delegation.finishedAt);
    const states = { succeeded: "good", failed: "bad", waiting: "warn", asking: "warn", running: "live" };
    const ended = delegation.result && [stateText(delegation), plain(delegation.result.summary)];
    const node = siblings.find((each) => each.delegation?.id === delegation.id) ??
      this.#add({ kind: "child", key: delegation.id, start: Date.parse(delegation.createdAt) }, caller ?? null);
    Object.assign(node, {
      delegation, title: delegation.request.task, end: finished || null,
      state: states[stateClass(delegation)] ?? "idle",
      detail: ended?.filter(Boolean).join(" — ") ?? "", cost: (delegation.result?.usage ?? delegation.progress).costUsd,
    });
    node.version += 1;
    return node;
  }

  #add(fields, parent) {
    if (!fields.key) this.#number += 1; // so that the same events have the same keys, with children or without
    const node = {
      key: `${this.#prefix}${this.#number}`, title: "", detail: "", state: "idle", end: null, children: [], parent,
      cost: null, version: 0, ...fields,
    };
    (parent?.children ?? this.nodes).push(node);
    return node;
  }

  /** The turn that something now happens in; null between turns. */
  get #now() {
    return this.#turn && !isOver(this.#turn) ? this.#turn : null;
  }

  #close(node, at, state = null) {
    if (node.end === null) node.end = at;
    if (state ?? node.state === "live") node.state = state ?? "idle";
    node.version += 1;
  }

  #closeTurn(at) {
    if (!this.#turn) return;
    const ends = [...this.#turn.children.map((each) => each.end ?? at), this.#turn.reply?.at ?? at];
    this.#close(this.#turn, Math.max(...ends), this.#turn.state === "live" ? "idle" : this.#turn.state);
  }

  #goOn(at) {
    if (this.#waiting) this.#close(this.#waiting, at, "idle");
    this.#waiting = null;
  }

  #closeAll(at) {
    for (const node of [this.#waiting, this.#queue, ...this.#asked.values(), ...this.stepsById.values()]) {
      if (node?.end === null) this.#close(node, at, "warn"); // how it ended is not known
    }
    this.#waiting = null;
    this.#closeTurn(at);
  }

  #run(event, at, before) {
    switch (event.type) {
      case "run_queued": {
        const upstreams = event.request.after?.length;
        this.request = event.request;
        this.#queue = this.#add({ kind: "wait", state: "warn", start: at, event,
          title: upstreams ? `Waits for ${count(upstreams, "delegation")}` : "Queued" }, null);
        break;
      }
      case "run_started":
        Object.assign(this, { limits: event.limits, begun: this.begun ?? at });
        if (this.#queue) {
          this.#close(this.#queue, at, "idle");
          this.#queue.detail = `began on ${event.worker} with ${event.model}`;
        }
        break;
      case "run_resumed":
        this.#goOn(at);
        this.#add({ kind: "retry", state: "warn", start: before, end: at, event,
          title: `Taken over at turn ${event.fromTurn}`,
          detail: `${event.reason}, then on ${event.worker}` }, this.#now);
        break;
      case "run_retried":
        this.#closeAll(at);
        this.#turn = null;
        this.#turnsByNumber.clear();
        this.stepsById.clear();
        this.#add({ kind: "retry", state: "bad", start: at, end: at + event.delaySeconds * 1000, event,
          title: `Done again from the start, ${event.retry} of ${event.of}`,
          detail: `after ${event.reason}: ${event.error}` }, null);
        break;
      case "run_finished":
        this.result = event.result;
        this.#closeAll(at);
        break;
      default:
    }
  }

  #reply(event, at) {
    if (event.type === "turn_started") {
      const known = this.#turnsByNumber.get(event.turn);
      if (known !== this.#turn) this.#closeTurn(at);
      this.#turn = known ?? this.#add({ kind: "turn", start: at }, null);
      Object.assign(this.#turn, { ...NO_REPLY, state: "live", end: null, title: `Turn ${event.turn}` });
      if (known) return;
      this.#turnsByNumber.set(event.turn, this.#turn);
      this.turns.push(this.#turn);
      return;
    }
    const turn = this.#turnsByNumber.get(event.turn);
    if (!turn) return;
    if (event.type === "model_retried") {
      this.#add({ kind: "retry", state: "warn", start: at, end: at + event.delaySeconds * 1000, event,
        title: "Asks the model again", detail: event.error }, turn);
      if (!turn.reply) Object.assign(turn, NO_REPLY); // what was streamed comes again
    } else if (event.type === "replied") {
      turn.reply = { ...event, at };
      turn.cost = event.usage.costUsd;
      turn.words = event.text;
      turn.thinking = event.thinking;
      if (isOver(turn)) this.#closeTurn(at);
    } else if (!turn.reply) { // a frame may arrive after the reply that has its text
      const part = event.type === "text_delta" ? "words" : "thinking";
      turn[part] = (turn[part] + event.text).slice(-TRANSIENT_TEXT);
    }
    turn.detail = plain(turn.words || turn.thinking);
    turn.version += 1;
  }

  #call(event, at) {
    if (event.type === "step_updated") {
      const node = this.stepsById.get(event.stepId);
      if (!node) return;
      Object.assign(node, { title: event.title ?? node.title, live: event.metadata, version: node.version + 1 });
      node.detail = event.metadata.step ?? node.detail;
    } else if (event.type === "permission_requested") {
      const turn = this.#turnsByNumber.get(event.path.length < 2 ? event.step.turnIndex : -1) ?? this.#now;
      this.#asked.set(event.permissionId, this.#add({ kind: "wait", state: "warn", start: at, event,
        title: WAITS.permission, detail: event.step.title }, turn));
    } else if (event.type === "permission_answered") {
      const node = this.#asked.get(event.permissionId);
      if (!node) return;
      node.answer = event;
      const words = answerWords(event.outcome, event.by) + (event.reason ? `: ${event.reason}` : "");
      node.detail = `${words}, ${node.event.step.title}`;
      this.#close(node, at, event.outcome === "cancel" ? "bad" : "idle");
    } else this.#step(event, at);
  }

  #step({ type, step }, at) {
    let node = this.stepsById.get(step.id);
    if (node?.step.turnIndex !== step.turnIndex) { // an endpoint may give calls of two turns the same id
      const turn = this.#turnsByNumber.get(step.turnIndex) ?? null;
      node = this.#add({ kind: "step", start: Date.parse(step.timestamp), step }, turn);
      this.stepsById.set(step.id, node);
      this.steps.push(node);
    }
    const ended = type === "step_completed";
    const state = step.status === "failed" ? (step.denied ? "warn" : "bad") : ended ? "good" : "live";
    Object.assign(node, { step, state, end: ended ? at : null, version: node.version + 1,
      title: step.title || step.toolName, detail: step.error || step.summary || step.description || "" });
  }

  #wait(event, at) {
    if (event.type === "resumed_waiting") {
      this.#goOn(at);
      return;
    }
    const asked = [...this.#asked].some(([id, node]) => node.end === null && event.detail.includes(id));
    if (event.why === "permission" && asked) return; // the request has a node of its own
    this.#waiting = this.#add({ kind: "wait", state: "warn", start: at, event,
      title: WAITS[event.why] ?? "Waits", detail: event.detail }, this.#now);
  }

  #other(event, at, before) {
    if (event.type === "check_completed") {
      this.#closeTurn(before);
      const wanted = event.on !== "canary";
      const state = event.on === "base" ? "idle" : event.ok === wanted ? "good" : "bad";
      this.#add({ kind: "check", start: before, end: at, event, state,
        title: `Check ${event.check + 1} ${GROUNDS[event.on] ?? event.on}`,
        detail: event.ok ? "succeeded" : `failed, exit code ${event.exitCode ?? "unknown"}` }, null);
    } else if (event.type === "message_read") {
      const node = this.#messages.get(event.messageId);
      if (node) Object.assign(node, { detail: `read in turn ${event.turn}`, version: node.version + 1 });
    } else if (event.line) {
      const node = this.#add({ kind: "note", start: at, end: at, event, state: event.type === "error" ? "bad" : "idle",
        title: event.line }, this.#now);
      if (event.messageId) this.#messages.set(event.messageId, node);
    }
  }
}

/** The tree of these events. */
export function treeOf(events, prefix = "") {
  const tree = new Tree(prefix);
  for (const event of events) tree.add(event);
  return tree;
}

/**
 * The rows that are shown: `{node, level, open}`, `open` null where there is nothing below. `toggled` has the keys of
 * those that are not as they are at first: all are open but child delegations, whose nodes come from `below(node)`.
 */
export function rowsOf(nodes, toggled, below, level = 0) {
  const rows = [];
  for (const node of nodes) {
    const children = node.kind === "child" ? below(node) : node.children;
    const expandable = node.kind === "child" || children.length > 0;
    const open = expandable ? (node.kind !== "child") !== toggled.has(node.key) : null;
    rows.push({ node, level, open });
    for (const row of open ? rowsOf(children, toggled, below, level + 1) : []) rows.push(row);
  }
  return rows;
}
