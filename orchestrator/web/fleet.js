// The fleet: filters, and a row for each delegation, children below their parent.

import { get, scopes } from "./api.js";
import { cancelButton } from "./actions.js";
import {
  badgesOf, childrenOf, elapsed, facts, isFinished, nowText, stateClass, stateOf, stateText, titleOf,
} from "./delegations.js";
import { byId, h, refill, setText, syncList } from "./dom.js";
import { FILTERS, fleetAddress, showFilters } from "./filters.js";
import { compact, duration, money, number } from "./numbers.js";
import { isForReview, listForReview, reviewRows } from "./review.js";
import { cut, visible } from "./text.js";

const PAGE = 100;
const MOST = 500;
const SEARCHED = 10_000; // characters of each text
const AGE_MS = 20_000; // ages are in minutes
const CELLS = ["state", "task", "now faint", "turns", "time", "cost", "age"];
const GROUPS = {
  open: { title: "In progress", holds: (node) => node.active && node.urgency > 0 },
  queued: { title: "Queued", holds: (node) => node.active && node.urgency === 0 },
  finished: { title: "Finished", holds: (node) => !node.active },
};

/** 2: something in this tree waits for a person; 1: something runs; 0: all is queued or finished. */
function urgencyOf({ item, children }) {
  const own = item.pendingPermissions?.length || item.paused ? 2 : ["running", "waiting"].includes(item.status) ? 1 : 0;
  return Math.max(own, ...children.map(urgencyOf));
}

export class Fleet {
  #known;
  #filters = Object.fromEntries(FILTERS.map((name) => [name, ""]));
  #limit = PAGE;
  #counts = null;
  #rows = new Map();
  #folded = new Map();
  #dirty = new Set();
  #stale = false;
  #aged = Date.now();

  /** `known` are the Delegations; `setFilters` puts filters into the address. */
  constructor(known, setFilters) {
    this.#known = known;
    const search = byId("search");
    search.addEventListener("input", () => setFilters({ ...this.#filters, text: search.value.trim() }));
    byId("delegations-more").addEventListener("click", () => {
      this.#limit = Math.min(MOST, this.#limit + PAGE);
      this.refresh().catch(() => {}); // the next refresh shows the trouble
    });
    this.#makeGroups();
    setInterval(() => this.#redraw(), 250);
    setInterval(() => this.#tick(), 1000);
  }

  /** Whether it shows what waits for a review. */
  get isReview() {
    return Boolean(this.#filters.review);
  }

  /** Takes the filters of the address. Returns whether the service has to be asked for other delegations. */
  filter(params) {
    const before = this.#filters;
    this.#filters = Object.fromEntries(FILTERS.map((name) => [name, params.get(name) ?? ""]));
    const search = byId("search");
    if (search.value.trim() !== this.#filters.text) search.value = this.#filters.text;
    this.#showFilters();
    this.show();
    return FILTERS.some((name) => name !== "text" && (before[name] ?? "") !== this.#filters[name]);
  }

  async refresh() {
    const { status, label, session, review } = this.#filters;
    const common = [...(label ? [["label", label]] : []), ...(session ? [["session", session]] : [])];
    const list = (more) => get(`v1/delegations?${new URLSearchParams([...common, ...Object.entries(more)])}`);
    // Those that are not finished are needed whatever is shown: they may become it.
    const open = ["running", "waiting", "queued"].map((each) => list({ status: each, limit: MOST }));
    const asked = status === "asking" ? "waiting" : status;
    await this.#known.load(async () => {
      const first = review ? listForReview(common) : list({ limit: this.#limit, ...(asked && { status: asked }) });
      const pages = await Promise.all([first, ...open]);
      byId("delegations-more").hidden = pages[0].nextCursor === null || this.#limit >= MOST;
      return pages.flatMap((page) => page.items);
    });
    this.show();
  }

  /** Takes how many delegations there are of each status, and why none can begin, or "". */
  setCounts(counts, hold) {
    this.#counts = { ...counts };
    this.#showFilters();
    if (this.#known.hold === hold) return;
    this.#known.hold = hold;
    for (const { id, status } of this.#known.all) if (status === "queued") this.#dirty.add(id);
  }

  /** Takes an event of any delegation; what it changes is drawn a moment later. */
  hear(event) {
    const id = event.delegationId;
    const before = this.#known.get(id)?.status;
    const moved = this.#known.take(event);
    if (moved === null) return;
    this.#count(before, this.#known.get(id).status);
    if (moved) this.#stale = true;
    else this.#dirty.add(id);
  }

  /** Draws a delegation again that an action has changed. */
  changed(id) {
    this.#dirty.add(id);
    this.#stale = true;
  }

  #count(before, after) {
    if (!this.#counts || before === after) return;
    if (before) this.#counts[before] = Math.max(0, this.#counts[before] - 1);
    this.#counts[after] += 1;
  }

  #redraw() {
    if (byId("fleet").hidden || (!this.#stale && !this.#dirty.size)) return;
    if (this.#stale) {
      this.#showFilters();
      this.show();
    }
    for (const id of this.#dirty) this.#updateRow(id);
    this.#stale = false;
    this.#dirty.clear();
  }

  #tick() {
    if (byId("fleet").hidden) return;
    const all = Date.now() - this.#aged >= AGE_MS;
    if (all) this.#aged = Date.now();
    for (const { item, cells } of this.#rows.values()) {
      if (!all && isFinished(item)) continue;
      const { time, age } = facts(item);
      setText(cells.time, time);
      if (all) setText(cells.age, age);
    }
  }

  #wanted(item) {
    const { status, label, session, text, review } = this.#filters;
    if (review && !isForReview(item)) return false;
    if (status && stateOf(item) !== status) return false;
    if (session && item.request.sessionId !== session) return false;
    const [key, ...value] = label.split(":");
    if (label && item.request.labels[key] !== value.join(":")) return false;
    const words = [item.id, item.request.task, item.request.agent, item.now, item.intent, item.result?.summary];
    return !text || words.some((each) => each?.slice(0, SEARCHED).toLowerCase().includes(text.toLowerCase()));
  }

  #makeGroups() {
    for (const [name, group] of Object.entries(GROUPS)) {
      group.count = h("span", { class: "faint" });
      group.list = h("ul", { class: "fleet-rows", "aria-labelledby": `group-${name}` });
      group.more = h("span", { class: "group-actions" });
      group.node = h("section", { class: "group", hidden: true },
        h("header", {}, h("h3", { id: `group-${name}` }, group.title), group.count, group.more), group.list);
      byId("groups").append(group.node);
    }
    const several = () => this.#known.all.filter((item) => !isFinished(item) && this.#wanted(item)).map(({ id }) => id);
    GROUPS.open.more.append(cancelButton("Cancel all…", several, (...asked) => this.#asked(...asked)));
  }

  /** Draws all rows; those that stay keep their focus. */
  show() {
    const focused = document.activeElement;
    const wanted = (item) => this.#wanted(item);
    const roots = this.isReview ? reviewRows(this.#known.all.filter(wanted)) : this.#known.trees(wanted);
    for (const root of roots) root.urgency = urgencyOf(root);
    for (const group of Object.values(GROUPS)) {
      const nodes = roots.filter(group.holds).sort((a, b) => b.urgency - a.urgency);
      group.node.hidden = nodes.length === 0;
      // Together they are what the chips of the states count.
      const below = nodes.reduce((sum, { active, below: all }) => sum + (active ? all.unfinished : all.count), 0);
      setText(group.count, number(nodes.length) + (below ? ` and ${childrenOf(below)}` : ""));
      this.#sync(group.list, nodes);
    }
    GROUPS.open.more.hidden = scopes !== null && !scopes.includes("submit");
    const filtered = FILTERS.some((name) => this.#filters[name]);
    byId("delegations-none").hidden = roots.length > 0;
    setText(byId("delegations-none"), filtered ? "Nothing matches these filters." :
      "Nothing has been delegated yet. Start with a new task.");
    if (focused !== document.activeElement && byId("groups").contains(focused)) focused.focus({ preventScroll: true });
  }

  #sync(list, nodes) {
    syncList(list, nodes, {
      key: ({ item }) => item.id,
      // it may only have moved to another group
      create: ({ item }) => (this.#rows.get(item.id) ?? this.#create(item)).element,
      update: (_, node) => this.#update(this.#rows.get(node.item.id), node),
      lostFocus: (heir) => (heir?.querySelector("a") ?? byId("fleet-title")).focus(),
    });
    for (const id of this.#rows.keys()) if (!this.#known.get(id)) this.#rows.delete(id);
  }

  #create({ id, request }) {
    const above = this.#known.get(request.parentId)?.request.labels ?? {}; // whose row has them
    const labels = Object.entries(request.labels).filter(([key, value]) => above[key] !== value)
      .map((pair) => [pair.join(":"), { label: pair.join(":") }]);
    const session = request.sessionId ? [[`session ${request.sessionId}`, { session: request.sessionId }]] : [];
    const chips = [...labels, ...session].map(([text, filter]) =>
      h("a", { class: "chip", href: fleetAddress(filter) }, cut(text, 60)));
    const toggle = h("button", { type: "button", class: "toggle", hidden: true, onclick: () => this.#fold(id) });
    const cells = Object.fromEntries(CELLS.map((name) => [name.split(" ")[0], h("span", { class: name })]));
    const title = titleOf({ request });
    setText(cells.task, title);
    const cancel = cancelButton("✕", () => [id], (...asked) => this.#asked(...asked), title);
    const sums = h("p", { class: "below faint", hidden: true });
    const list = h("ul", { class: "fleet-rows", hidden: true });
    const element = h("li", {},
      h("div", { class: "row-line" }, toggle, h("a", { class: "row-link", href: `#${id}` }, Object.values(cells)),
        h("span", { class: "chips" }, request.agent && h("span", { class: "chip" }, visible(request.agent)), chips),
        cancel), sums, list);
    const row = { element, toggle, cells, cancel, sums, list, item: null, open: 0 };
    this.#rows.set(id, row);
    return row;
  }

  #fold(id) {
    this.#folded.set(id, !this.#rows.get(id).list.hidden);
    this.show();
  }

  #update(row, { item, children, below }) {
    const { toggle, sums, list } = row;
    if (row.item !== item || row.open !== below.open) {
      row.open = below.open;
      this.#updateRow(item.id);
    }
    const folded = this.#folded.get(item.id) ?? !children.some(({ active }) => active);
    toggle.hidden = children.length === 0;
    setText(toggle, folded ? "▸" : "▾");
    toggle.setAttribute("aria-expanded", String(!folded));
    toggle.setAttribute("aria-label", `Children of ${titleOf(item)}`);
    sums.hidden = children.length === 0;
    const parts = [childrenOf(below.count),
      below.open && `${number(below.open)} not finished`, duration(below.time),
      below.tokens && `${compact(below.tokens)} tokens`, money(below.cost)];
    setText(sums, children.length ? parts.filter(Boolean).join(" · ") : "");
    list.hidden = folded || children.length === 0;
    this.#sync(list, list.hidden ? [] : children);
  }

  #updateRow(id) {
    const [row, item] = [this.#rows.get(id), this.#known.get(id)];
    if (!row || !item) return;
    row.item = item;
    const { cells: { state, now, ...cells }, cancel } = row;
    state.className = `state ${stateClass(item)}`;
    setText(state, stateText(item));
    refill(now, [badgesOf(item).map(([text, style]) => [h("span", { class: `badge ${style}` }, visible(text)), " "]),
      nowText(item, row.open, this.#known.hold)]);
    const { turns, time, cost, age } = facts(item);
    const begun = elapsed(item) !== null;
    for (const [name, text] of Object.entries({ turns: begun ? turns : "", time, cost: begun ? cost : "", age })) {
      setText(cells[name], text);
    }
    cancel.hidden = isFinished(item) || Boolean(item.asked) || (scopes !== null && !scopes.includes("submit"));
  }

  /** Shows what was asked before the service has answered; `problem` takes it back. */
  #asked(id, problem = null) {
    this.#known.note(id, problem ? null : "cancelling…");
    this.#dirty.add(id);
  }

  #showFilters() {
    showFilters(this.#filters, this.#counts, this.#known.all);
  }
}
