// The tree of a run with its bars over time. Only the rows that can be seen exist as elements.

import { h, setText } from "../dom.js";
import { duration, money } from "../numbers.js";
import { cut } from "../text.js";
import { barOf, heats, ticksOf } from "./bars.js";
import { button, div, span as cell } from "./elements.js";
import { rowsOf } from "./tree.js";

const SPARE_ROWS = 6;
const LONGEST = 300;
const OWN_SCROLL_MS = 50; // in which the event of a scroll by this program comes
const DENSITIES = { compact: "Compact", normal: "Normal", detailed: "Detailed" };
const COLOURS = { outcome: "Outcome", cost: "Cost" };
const KINDS = { turn: "◆", wait: "‖", retry: "↻", check: "☑", note: "·", child: "⇢" };
const SIGNS = { good: "✓", bad: "✗", warn: "!", live: "▸", idle: "–" };
const WORDS = { good: "succeeded", bad: "failed", live: "running" };

export const signOf = ({ kind, state }) => (kind === "step" ? SIGNS[state] : KINDS[kind]);

/** A choice of one of several, as a row of buttons. */
function choice(label, options, value, onChange) {
  const buttons = Object.entries(options).map(([name, words]) => button(words, () => {
    for (const each of buttons) each.setAttribute("aria-pressed", String(each.textContent === words));
    onChange(name);
  }, { "aria-pressed": String(name === value) }));
  return h("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

/** The elements of a row, which `fillRow` fills. */
export function rowParts(name = "div") {
  const names = ["unseen", "title", "detail", "bar", "time", "cost"];
  const parts = Object.fromEntries(names.map((each) => [each, cell(each)]));
  for (const each of ["caret", "sign"]) parts[each] = h("span", { class: each, "aria-hidden": "true" });
  const what = cell("what", parts.caret, parts.sign, parts.unseen, cell("words", parts.title, parts.detail));
  const element = h(name, { class: "tree-row" }, what, cell("lane", parts.bar), parts.time, parts.cost);
  return { element, version: "", ...parts };
}

/** A bar; within that of a turn lies the time in which the model replied. */
function fillBar(bar, node, span, now, heat) {
  const { left, width, open, cut: isCut } = barOf(node, span, now);
  const replied = node.reply ? barOf({ start: node.start, end: node.reply.at }, span, now).width : width;
  const key = [node.kind, node.state, left, width, open, isCut, heat, replied].join();
  if (bar.shown === key) return; // a style that is set again is drawn again
  bar.shown = key;
  bar.className = `bar ${node.kind} ${node.state}`;
  for (const [name, is] of Object.entries({ open, cut: isCut, heat: heat !== null })) bar.classList.toggle(name, is);
  bar.style.left = `${left}%`;
  bar.style.width = `${width}%`;
  if (heat !== null) bar.style.setProperty("--heat", `${Math.round(heat * 100)}%`);
  if (node.kind !== "turn") return;
  if (!bar.hasChildNodes()) bar.append(cell("model"));
  bar.firstElementChild.style.width = `${width > 0 ? (replied / width) * 100 : 100}%`;
}

export function fillRow(row, node, span, now, heat = null) {
  const style = `tree-row ${node.kind} ${node.state}`;
  if (row.element.className !== style) row.element.className = style;
  setText(row.sign, signOf(node));
  setText(row.unseen, WORDS[node.state] ?? "");
  setText(row.time, node.kind === "note" ? "" : duration((node.end ?? now) - node.start));
  if (row.version !== `${node.key}.${node.version}`) {
    row.version = `${node.key}.${node.version}`;
    setText(row.title, cut(node.title, LONGEST));
    setText(row.detail, cut(node.detail, LONGEST));
    setText(row.cost, typeof node.cost === "number" ? money(node.cost) : "");
  }
  fillBar(row.bar, node, span, now, heat);
}

export const axis = (span) => ticksOf(span).map(({ left, ms }) => {
  const mark = cell("tick", duration(ms));
  mark.style.left = `${left}%`;
  return mark;
});

export const axisRow = (marks) => h("div", { class: "axis-row", "aria-hidden": "true" }, cell(""), div("axis", marks));

export class Timeline {
  #tree = null;
  #now = 0;
  #until = null;
  #span;
  #rows = [];
  #shown = new Map();
  #toggled = new Set();
  #active = null;
  #colour = "outcome";
  #handlers;
  #axis = axisRow([]);
  #line = cell("line");
  #head = h("div", { class: "playhead", hidden: true }, cell(""), cell("lane", this.#line));
  #lane = h("div", { class: "tree-rows", role: "presentation" }, this.#head);
  #size = new ResizeObserver(() => requestAnimationFrame(() => this.#measured()));
  /** Of a row and of what is seen, in pixels: read only when they change, as each reading lays the page out. */
  #height = 32;
  #seen = 0;
  #top = 0;
  #scrolledAt = 0;
  #follows = true;

  /** `onSelect(node)`, `onEnter(node)`, `onEscape()`; `onOpen(node)` of a child, whose nodes `below(node)` returns. */
  constructor(handlers) {
    this.#handlers = handlers;
    this.scroller = h("div", {
      class: "tree normal", role: "tree", tabindex: "0", "aria-label": "Turns, steps and waits",
      onscroll: () => this.#scrolled(), onclick: (event) => this.#click(event), onkeydown: (event) => this.#key(event),
    }, this.#lane);
    this.tools = div("tools",
      choice("Density", DENSITIES, "normal", (name) => {
        this.scroller.className = `tree ${name}`;
        this.#measured();
      }),
      choice("Colour", COLOURS, "outcome", (name) => {
        this.#colour = name;
        this.#draw();
      }), button("Fold turns", () => this.#foldTurns()));
    this.node = div("timeline", this.#axis, this.scroller);
    this.#size.observe(this.scroller);
  }

  close() {
    this.#size.disconnect();
  }

  /** Takes a tree, the time that it is, the span that is drawn, and where a replay stands, or null. */
  update(tree, now, span, until = null) {
    const moved = this.#span?.from !== span.from || this.#span.to !== span.to;
    [this.#tree, this.#now, this.#span, this.#until] = [tree, now, span, until];
    if (moved) this.#axis.lastElementChild.replaceChildren(...axis(span));
    this.redraw();
  }

  /** A run that goes on is followed until the reader scrolls away from its end. */
  #scrolled() {
    if (performance.now() - this.#scrolledAt < OWN_SCROLL_MS) return;
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    this.#follows = scrollTop + clientHeight >= scrollHeight - 2;
    this.#top = scrollTop;
    this.#draw();
  }

  #measured() {
    const { clientHeight, clientWidth, offsetWidth } = this.scroller;
    this.#seen = clientHeight;
    this.#height = Number.parseFloat(getComputedStyle(this.scroller).getPropertyValue("--row")) || 32;
    this.#axis.style.marginRight = `${offsetWidth - clientWidth}px`; // as wide as the bar that scrolls
    this.#draw();
  }

  #scroll(top) {
    if (top === this.#top) return;
    this.#top = top;
    this.scroller.scrollTop = top;
    this.#scrolledAt = performance.now();
  }

  /** The same again, where what is open has changed. */
  redraw() {
    if (this.#tree) this.#rows = rowsOf(this.#tree.nodes, this.#toggled, this.#handlers.below);
    this.#draw();
  }

  /** The node with this key in the tree that is shown, or undefined. */
  nodeOf(key, nodes = this.#tree?.nodes ?? []) {
    for (const node of nodes) {
      const below = node.kind === "child" ? this.#handlers.below(node) : node.children;
      const found = node.key === key ? node : this.nodeOf(key, below);
      if (found) return found;
    }
    return undefined;
  }

  /** Selects a node, opens what it is in, and brings it into view. */
  select(node) {
    for (let each = node.parent; each; each = each.parent) this.#toggled.delete(each.key);
    this.#active = node.key;
    this.#follows = false;
    this.redraw();
    this.#reveal();
    this.#handlers.onSelect(node);
  }

  deselect() {
    this.#active = null;
    this.#draw();
  }

  /** Selects the next row or, with -1, the one before. */
  step(by) {
    const row = this.#rows[Math.max(0, this.#at + by)];
    if (row) this.select(row.node);
  }

  get #at() {
    return this.#rows.findIndex(({ node }) => node.key === this.#active);
  }

  #reveal() {
    const top = this.#at * this.#height;
    this.#scroll(Math.min(top, Math.max(this.#top, top + this.#height - this.#seen)));
    this.#draw();
  }

  #toggle(node) {
    if (!this.#toggled.delete(node.key)) this.#toggled.add(node.key);
    if (node.kind === "child") this.#handlers.onOpen(node);
    this.redraw();
  }

  #foldTurns() {
    const keys = this.#tree.turns.map(({ key }) => key);
    const folded = keys.every((key) => this.#toggled.has(key));
    for (const key of keys) this.#toggled[folded ? "delete" : "add"](key);
    this.redraw();
  }

  #draw() {
    if (!this.#tree) return;
    const height = this.#height;
    this.#lane.style.height = `${this.#rows.length * height}px`;
    const bottom = Math.max(0, this.#rows.length * height - this.#seen);
    if (this.#follows && !this.#tree.result) this.#scroll(bottom);
    const first = Math.max(0, Math.floor(this.#top / height) - SPARE_ROWS);
    const last = Math.ceil((this.#top + this.#seen) / height) + SPARE_ROWS;
    const visible = this.#rows.slice(first, last);
    const heat = this.#colour === "cost" ? heats(this.#rows.map(({ node }) => node)) : null;
    const wanted = new Set(visible.map(({ node }) => node.key));
    for (const [key, { element }] of this.#shown) {
      if (wanted.has(key)) continue;
      element.remove();
      this.#shown.delete(key);
    }
    let next = this.#head.nextElementSibling;
    for (const [at, { node, level, open }] of visible.entries()) {
      const row = this.#rowOf(node.key);
      if (row.element === next) next = next.nextElementSibling;
      else this.#lane.insertBefore(row.element, next);
      const place = `translateY(${(first + at) * height}px)`;
      if (row.element.style.transform !== place) row.element.style.transform = place;
      if (row.level !== level) row.element.style.setProperty("--level", row.level = level);
      fillRow(row, node, this.#span, this.#now, heat && (heat.get(node.key) ?? 0));
      this.#describe(row, node, level, open);
    }
    this.scroller.setAttribute("aria-activedescendant", wanted.has(this.#active) ? `row-${this.#active}` : "");
    this.#head.hidden = this.#until === null;
    const at = { start: this.#until, end: this.#until };
    if (this.#until !== null) this.#line.style.left = `${barOf(at, this.#span, 0).left}%`;
  }

  #rowOf(key) {
    if (!this.#shown.has(key)) {
      const row = rowParts();
      for (const [name, value] of [["role", "treeitem"], ["id", `row-${key}`]]) row.element.setAttribute(name, value);
      row.element.dataset.row = key;
      this.#shown.set(key, row);
    }
    return this.#shown.get(key);
  }

  #describe({ element, caret }, node, level, open) {
    const state = { "aria-level": level + 1, "aria-selected": node.key === this.#active };
    for (const [name, value] of Object.entries(state)) {
      if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
    }
    if (open === null) element.removeAttribute("aria-expanded");
    else element.setAttribute("aria-expanded", String(open));
    setText(caret, open === null ? "" : open ? "▾" : "▸");
  }

  #click(event) {
    const key = event.target.closest("[data-row]")?.dataset.row;
    const row = this.#rows.find(({ node }) => node.key === key);
    if (!row) return;
    if (event.target.closest(".caret") && row.open !== null) this.#toggle(row.node);
    else this.select(row.node);
  }

  #key(event) {
    const at = this.#at;
    const row = this.#rows[at];
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / this.#height) - 1);
    const { length } = this.#rows;
    const to = (index) => this.select(this.#rows[Math.min(length - 1, Math.max(0, index))].node);
    const [down, up] = [() => to(at + 1), () => to(at - 1)];
    const moves = {
      ArrowDown: down, j: down, ArrowUp: up, k: up, PageDown: () => to(at + page), PageUp: () => to(at - page),
      Home: () => to(0), End: () => to(length - 1),
      ArrowRight: () => (row?.open === false ? this.#toggle(row.node) : down()),
      ArrowLeft: () => (row?.open ? this.#toggle(row.node) : row?.node.parent && this.select(row.node.parent)),
      Enter: () => row && this.#handlers.onEnter(row.node), Escape: () => this.#handlers.onEscape(),
    };
    if (!moves[event.key] || !length || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && !this.#active) return; // the page's own
    event.preventDefault();
    event.stopPropagation();
    moves[event.key]();
  }
}
