// The fleet: filters, and a row for each delegation, children below their parent.

import { get, scopes } from "./api.js";
import { cancelButton } from "./actions.js";
import {
  elapsed, facts, inShort, isFinished, STATUSES, statusClass, statusText, titleOf,
} from "./delegations.js";
import { byId, h, setText, syncList } from "./dom.js";
import { compact, duration, money, number } from "./numbers.js";
import { count, cut, visible } from "./text.js";

const PAGE = 100;
const MOST = 500;
const SEARCHED = 10_000; // characters of each text
const FILTERS = ["status", "label", "session", "text"];
const GROUPS = {
  open: { title: "Running", holds: (node) => node.active && node.urgency > 0 },
  queued: { title: "Queued", holds: (node) => node.active && node.urgency === 0 },
  finished: { title: "Finished", holds: (node) => !node.active },
};

/** 2: something in this tree waits for a person; 1: something runs; 0: all is queued or finished. */
function urgencyOf({ item, children }) {
  const own = item.pendingPermissions?.length || item.paused ? 2 : ["running", "waiting"].includes(item.status) ? 1 : 0;
  return Math.max(own, ...children.map(urgencyOf));
}

/** The address of the fleet with these filters. */
export function fleetAddress(filters) {
  const given = FILTERS.filter((name) => filters[name]).map((name) => [name, filters[name]]);
  return given.length ? `#?${new URLSearchParams(given)}` : "#";
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
    const { status, label, session } = this.#filters;
    const common = [...(label ? [["label", label]] : []), ...(session ? [["session", session]] : [])];
    const list = (more) => get(`v1/delegations?${new URLSearchParams([...common, ...Object.entries(more)])}`);
    // Those that are not finished are needed whatever is shown: they may become it.
    const open = ["running", "waiting", "queued"].map((each) => list({ status: each, limit: MOST }));
    const pages = await Promise.all([list({ limit: this.#limit, ...(status && { status }) }), ...open]);
    const items = new Map(pages.flatMap((page) => page.items).map((item) => [item.id, item]));
    this.#known.load([...items.values()]);
    byId("delegations-more").hidden = pages[0].nextCursor === null || this.#limit >= MOST;
    this.show();
  }

  /** Takes how many delegations there are of each status. */
  setCounts(counts) {
    this.#counts = { ...counts };
    this.#showFilters();
  }

  /** Takes an event of any delegation; what it changes is drawn a moment later. */
  hear(event) {
    const before = this.#known.get(event.delegationId)?.status;
    const moved = this.#known.take(event);
    if (moved === null) return;
    if (moved) {
      this.#stale = true;
      this.#count(before, this.#known.get(event.delegationId).status);
    } else this.#dirty.add(event.delegationId);
  }

  /** Draws a delegation again that an action has changed. */
  changed(id) {
    this.#dirty.add(id);
    this.#stale = true;
  }

  #count(before, after) {
    if (!this.#counts) return;
    if (before) this.#counts[before] = Math.max(0, this.#counts[before] - 1);
    this.#counts[after] += 1;
  }

  #redraw() {
    if (byId("fleet").hidden || (!this.#stale && !this.#dirty.size)) return;
    if (this.#stale) {
      this.#showFilters();
      this.show();
    } else for (const id of this.#dirty) this.#updateRow(id);
    this.#stale = false;
    this.#dirty.clear();
  }

  #tick() {
    if (byId("fleet").hidden) return;
    for (const [id, row] of this.#rows) {
      const item = this.#known.get(id);
      if (!item) continue;
      const { time, age } = facts(item);
      setText(row.querySelector(".time"), time);
      setText(row.querySelector(".age"), age);
    }
  }

  #wanted(item) {
    const { status, label, session, text } = this.#filters;
    if (status && item.status !== status) return false;
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
    const roots = this.#known.trees((item) => this.#wanted(item));
    for (const root of roots) root.urgency = urgencyOf(root);
    for (const group of Object.values(GROUPS)) {
      const nodes = roots.filter(group.holds).sort((a, b) => b.urgency - a.urgency);
      group.node.hidden = nodes.length === 0;
      setText(group.count, number(nodes.length));
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
      create: ({ item }) => this.#rows.get(item.id) ?? this.#create(item), // it may only have moved to another group
      update: (row, node) => this.#update(row, node),
      lostFocus: (heir) => (heir?.querySelector("a") ?? byId("fleet-title")).focus(),
    });
    for (const id of this.#rows.keys()) if (!this.#known.get(id)) this.#rows.delete(id);
  }

  #create({ id, request }) {
    const labels = Object.entries(request.labels).map((pair) => [pair.join(":"), { label: pair.join(":") }]);
    const session = request.sessionId ? [[`session ${request.sessionId}`, { session: request.sessionId }]] : [];
    const chips = [...labels, ...session].map(([text, filter]) =>
      h("a", { class: "chip", href: fleetAddress(filter) }, cut(text, 60)));
    const toggle = h("button", { type: "button", class: "toggle", hidden: true, onclick: () => this.#fold(id) });
    const cell = (name) => h("span", { class: name });
    const row = h("li", {},
      h("div", { class: "row-line" }, toggle,
        h("a", { class: "row-link", href: `#${id}` }, cell("state"), h("span", { class: "task" }, titleOf({ request })),
          h("span", { class: "now faint" }), cell("turns"), cell("time"), cell("cost"), cell("age")),
        h("span", { class: "chips" }, request.agent && h("span", { class: "chip" }, visible(request.agent)), chips),
        cancelButton("✕", () => [id], (...asked) => this.#asked(...asked), `Cancel ${titleOf({ request })}`)),
      h("p", { class: "below faint", hidden: true }), h("ul", { class: "fleet-rows", hidden: true }));
    this.#rows.set(id, row);
    return row;
  }

  #fold(id) {
    const row = this.#rows.get(id);
    this.#folded.set(id, !row.lastElementChild.hidden);
    this.show();
  }

  #update(row, node) {
    const { item, children, below } = node;
    this.#updateRow(item.id);
    const [line, sums, list] = row.children;
    const folded = this.#folded.get(item.id) ?? !children.some(({ active }) => active);
    const toggle = line.firstElementChild;
    toggle.hidden = children.length === 0;
    setText(toggle, folded ? "▸" : "▾");
    toggle.setAttribute("aria-expanded", String(!folded));
    toggle.setAttribute("aria-label", `Children of ${titleOf(item)}`);
    sums.hidden = children.length === 0;
    const parts = [`${number(below.count)} ${below.count === 1 ? "child" : "children"}`,
      below.open && `${number(below.open)} not finished`, duration(below.time),
      below.tokens && `${compact(below.tokens)} tokens`, money(below.cost)];
    setText(sums, children.length ? parts.filter(Boolean).join(" · ") : "");
    list.hidden = folded || children.length === 0;
    this.#sync(list, list.hidden ? [] : children);
  }

  #updateRow(id) {
    const [row, item] = [this.#rows.get(id), this.#known.get(id)];
    if (!row || !item) return;
    const link = row.querySelector(".row-link");
    const [state, , now, ...cells] = link.children;
    state.className = `state ${statusClass(item)}`;
    setText(state, statusText(item));
    setText(now, nowText(item));
    const { turns, time, cost, age } = facts(item);
    const begun = elapsed(item) !== null;
    [begun ? turns : "", time, begun ? cost : "", age].forEach((text, at) => setText(cells[at], text));
    const cancel = row.querySelector(".row-line > .cancel");
    cancel.hidden = isFinished(item) || Boolean(item.asked) || (scopes !== null && !scopes.includes("submit"));
  }

  /** Shows what was asked before the service has answered; `problem` takes it back. */
  #asked(id, problem = null) {
    this.#known.note(id, problem ? null : "cancelling…");
    this.#dirty.add(id);
  }

  #showFilters() {
    const { status } = this.#filters;
    const chip = (name, text) => h("a", {
      class: "chip", href: fleetAddress({ ...this.#filters, status: name }), "aria-current": name === status && "true",
    }, text);
    const all = this.#counts && STATUSES.reduce((sum, each) => sum + this.#counts[each], 0);
    const amount = (value) => (this.#counts ? ` ${number(value)}` : "");
    const shown = STATUSES.filter((each) => !this.#counts || this.#counts[each] || each === status);
    const chips = [["", `All${amount(all)}`], ...shown.map((each) => [each, `${each}${amount(this.#counts?.[each])}`])];
    const set = ["label", "session"].filter((name) => this.#filters[name]).map((name) =>
      [{ ...this.#filters, [name]: "" }, `${name} ${this.#filters[name]}`]);
    const key = JSON.stringify([chips, set, this.#filters]);
    const nav = byId("filters");
    if (nav.dataset.shown === key) return; // so that a focused one stays
    const focused = [...nav.children].indexOf(document.activeElement);
    nav.dataset.shown = key;
    nav.replaceChildren(...chips.map(([name, text]) => chip(name, text)), ...set.map(([filters, text]) =>
      h("a", { class: "chip set", href: fleetAddress(filters), "aria-label": `Remove the filter ${visible(text)}` },
        cut(text, 60), " ✕")));
    nav.children[focused]?.focus();
  }
}

/** One line: what it does, and why; of a finished one what came of it. */
function nowText(item) {
  if (item.asked) return item.asked;
  if (item.result) return outcomeText(item.result);
  if (item.waitsFor?.length) return `waits for ${count(item.waitsFor.length, "delegation")}`;
  const asks = item.pendingPermissions?.length ? "asks for permission" : null;
  const now = item.now ?? asks ?? item.progress.lastStep ?? item.progress.lastTool ?? "";
  return [now, item.intent].filter(Boolean).map((each) => inShort(each, 140)).join(" — ");
}

/** Facts before words: what the checks showed, what was denied, then the summary. */
function outcomeText({ verification: { verdict }, deniedCallCount, summary, errors }) {
  const denied = deniedCallCount > 0 && `${count(deniedCallCount, "call")} denied`;
  const facts = [verdict !== "unverified" && verdict, denied];
  return [...facts, summary || errors.at(-1)].filter(Boolean).map((each) => inShort(each, 200)).join(" — ");
}
