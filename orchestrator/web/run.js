// One delegation: live and past on one page, with its tree, its result, its transcript, and what can be done about it.

import { Actions } from "./actions.js";
import { get, serviceNow } from "./api.js";
import { isFinished, titleOf } from "./delegations.js";
import { h, refill, replace, setText } from "./dom.js";
import { duration, money } from "./numbers.js";
import { ahead, spanOf } from "./run/bars.js";
import { Children, eventsPath } from "./run/children.js";
import { fileOf } from "./run/download.js";
import { button, div, save, text } from "./run/elements.js";
import { crumbs, metaOf, numbersOf, workView } from "./run/head.js";
import { Inspector } from "./run/inspector.js";
import { requestView, transcriptView, usageView } from "./run/record.js";
import { Replay } from "./run/replay.js";
import { resultView } from "./run/result.js";
import { Timeline } from "./run/timeline.js";
import { Tree, treeOf } from "./run/tree.js";
import { whyChanged, whyChecked, whyEnded } from "./run/why.js";
import { EventStream } from "./stream.js";
import { visible } from "./text.js";

const DRAW_MS = 500;
const TICK_MS = 1000;
const TABS = { timeline: "Timeline", transcript: "Transcript", usage: "Usage", request: "Request" };

/** Draws a delegation into an element, until `close`; between `pause` and `resume` without connections. */
export class RunView {
  #id;
  #context;
  #delegation = null;
  #events = [];
  #live = new Tree();
  /** What is shown: the live one, or that of a replay. */
  #tree = this.#live;
  #stream = null;
  #drawing = 0;
  #clock = 0;
  #tab;
  #parts;
  #actions = null;
  /** What `now` shows: the result, or a version of the work. */
  #side = null;
  #closed = false;
  #children;
  #timeline;
  #inspector;
  #replay;

  constructor(root, id, context) {
    this.#id = id;
    this.#context = context;
    this.#tab = Object.keys(TABS).find((name) => name === context.params.get("tab")) ?? "timeline";
    this.#children = new Children(id, () => this.#replayed());
    this.#timeline = new Timeline({
      onSelect: (node) => this.#inspect(node), onEscape: () => this.#leave(),
      onEnter: ({ kind, key }) => (kind === "child" ? context.navigate(`#${key}`) : this.#inspector.title.focus()),
      onOpen: (node) => this.#children.open(node.delegation.id),
      below: (node) => this.#children.below(node.delegation.id, this.#until),
    });
    this.#inspector = new Inspector({ goTo: (key) => this.#goTo(key), onClose: () => this.#leave() });
    this.#replay = new Replay(() => this.#replayed());
    this.#parts = this.#makeParts();
    root.replaceChildren(this.#parts.view);
    this.#showTab();
    this.#parts.title.focus({ preventScroll: true });
    document.addEventListener("keydown", this.#key, true);
    this.resume();
  }

  close() {
    this.#closed = true;
    this.pause();
    this.#replay.stop();
    this.#timeline.close();
    this.#children.close();
    document.removeEventListener("keydown", this.#key, true);
    this.#parts.view.remove();
  }

  pause() {
    this.#stream?.close();
    this.#stream = null;
    clearInterval(this.#clock);
  }

  resume() {
    if (this.#closed || this.#live.result || this.#stream) return;
    this.#refresh();
    this.#stream = new EventStream(eventsPath(this.#id, this.#events), {
      onEvent: (event) => this.#hear(event),
      onRefused: (error) => setText(this.#parts.problem, visible(error.message)),
    });
    this.#clock = setInterval(() => this.#drawSoon(), TICK_MS);
  }

  async #refresh() {
    try {
      const delegation = await get(`v1/delegations/${this.#id}`);
      if (!this.#closed) this.#fill(delegation);
    } catch (error) {
      if (!this.#delegation) setText(this.#parts.title, "Not available");
      setText(this.#parts.problem, visible(error.message));
    }
  }

  #makeParts() {
    const title = h("h2", { tabindex: "-1" }, "…");
    const links = h("nav", { class: "crumbs", "aria-label": "Above" });
    const [meta, numbers, now, act, other] = [text("meta"), div("numbers"), div("now"), div("act"), div("other")];
    const problem = h("p", { class: "problem", role: "status" });
    const tabs = Object.entries(TABS).map(([name, words]) => h("button", {
      type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "run-panel",
      onclick: () => this.#choose(name), onkeydown: (event) => this.#tabKey(event),
    }, words));
    other.addEventListener("click", (event) => this.#goTo(event.target.closest("[data-goto]")?.dataset.goto));
    const file = button("Download", () => this.#download(file));
    const columns = div("run-columns",
      h("section", { class: "panel main", "aria-label": "Timeline" },
        div("toolbar", this.#timeline.tools, this.#replay.node), this.#timeline.node),
      div("side", now, act), this.#inspector.element);
    const panel = h("div", { role: "tabpanel", id: "run-panel" }, columns, other);
    const view = div("run-view",
      h("header", { class: "run-head" }, links, title, meta, problem, numbers),
      div("tab-row", h("div", { class: "tabs", role: "tablist", "aria-label": "Parts" }, tabs), file), panel);
    return { view, title, links, meta, numbers, problem, tabs, panel, now, act, other, columns };
  }

  #fill(delegation) {
    this.#delegation = delegation;
    const { title, links, problem, act } = this.#parts;
    setText(problem, "");
    setText(title, titleOf(delegation));
    replace(links, ...crumbs(delegation));
    this.#actions ??= new Actions(act, delegation, this.#context);
    this.#draw();
  }

  /** Until the end, the events of the fleet say how far it is, so that no page asks the service for that. */
  #drawHead() {
    const asked = this.#delegation;
    if (!asked) return;
    const known = !isFinished(asked) && this.#context.known.get(this.#id);
    const now = known ? { ...asked, ...known, request: asked.request } : asked;
    refill(this.#parts.meta, metaOf(now));
    refill(this.#parts.numbers, [numbersOf(now)]);
    this.#actions.update(now);
  }

  /** Returns whether it was the last event. */
  #hear(event) {
    this.#live.add(event);
    if (event.seq) this.#events.push(event);
    const [finished, delegates] = [event.type === "run_finished", event.step?.type === "delegate"];
    if (finished) clearInterval(this.#clock);
    if (finished) this.#refresh();
    if (delegates) this.#children.attach(this.#live, null); // one that was known before its call
    if (finished || delegates || event.type === "run_queued") this.#children.find();
    this.#drawSoon();
    return finished;
  }

  #drawSoon() {
    this.#drawing ||= setTimeout(() => this.#draw(), DRAW_MS);
  }

  /** The time to which a replay has come, or null. */
  get #until() {
    return this.#replay.position === null ? null : this.#tree.last;
  }

  get #now() {
    return this.#live.result ? this.#live.last : Math.max(serviceNow(), this.#live.last);
  }

  #replayed() {
    this.#tree = this.#replay.position === null ? this.#live : treeOf(this.#events.slice(0, this.#replay.position));
    this.#children.attach(this.#tree, this.#until);
    this.#draw();
    if (this.#tab === "usage") this.#showTab(); // what children cost
  }

  #draw() {
    clearTimeout(this.#drawing);
    this.#drawing = 0;
    if (this.#closed) return;
    this.#drawHead();
    if (this.#live.start === null) return;
    const now = this.#until ?? this.#now;
    this.#replay.update(this.#events, this.#tree.last);
    this.#timeline.update(this.#tree, now, spanOf(this.#live, ahead(this.#live, this.#now)), this.#until);
    const node = this.#inspector.node && this.#timeline.nodeOf(this.#inspector.node.key);
    if (node) this.#inspector.show(node, now);
    this.#drawSide();
  }

  /** The result where there is one, else what the model does. */
  #drawSide() {
    const result = this.#tree.result && this.#delegation?.result;
    const shown = [this.#tree.turns.at(-1), ...this.#tree.steps.filter(({ end }) => end === null)];
    const { hold } = this.#context.known;
    const side = result ? "result" : [hold, ...shown.map((each) => `${each?.key}.${each?.version}`)].join();
    if (this.#side === side) return;
    this.#side = side;
    replace(this.#parts.now, result ? div("panel result", resultView(this.#delegation, this.#explain())) :
      workView(this.#tree, hold));
    if (result && this.#tab !== "timeline") this.#showTab();
  }

  #explain() {
    const show = (title, causes) => {
      this.#timeline.deselect();
      this.#parts.view.classList.add("inspects");
      this.#inspector.explain(title, causes);
    };
    return {
      end: () => show("Why it ended", whyEnded(this.#live, { ms: duration, usd: money })),
      check: (index) => show(`Why check ${index + 1} ended so`, whyChecked(this.#live, index)),
      file: ({ path, from }) => show(`Why ${path} changed`, whyChanged(this.#live, path, from)),
      step: (id) => this.#goTo(this.#live.stepsById.get(id)?.key),
    };
  }

  #inspect(node) {
    this.#parts.view.classList.add("inspects");
    this.#inspector.show(node, this.#until ?? this.#now);
    this.#timeline.redraw();
  }

  #goTo(key) {
    if (!key) return;
    if (!this.#timeline.nodeOf(key)) this.#replay.end();
    if (this.#tab !== "timeline") this.#choose("timeline");
    const node = this.#timeline.nodeOf(key);
    if (!node) return;
    this.#timeline.select(node);
    this.#timeline.scroller.focus();
  }

  #leave() {
    this.#inspector.close();
    this.#parts.view.classList.remove("inspects");
    this.#timeline.deselect();
    this.#timeline.scroller.focus();
  }

  #choose(name) {
    this.#tab = name;
    this.#context.setParams({ tab: name === "timeline" ? null : name });
    this.#showTab();
  }

  #showTab() {
    const { tabs, panel, columns, other } = this.#parts;
    for (const each of tabs) {
      const chosen = each.id === `tab-${this.#tab}`;
      each.setAttribute("aria-selected", String(chosen));
      each.tabIndex = chosen ? 0 : -1;
    }
    panel.setAttribute("aria-labelledby", `tab-${this.#tab}`);
    columns.hidden = this.#tab !== "timeline";
    other.hidden = !columns.hidden;
    const views = {
      transcript: () => transcriptView(this.#live), usage: () => usageView(this.#live, this.#children.all),
      request: () => this.#delegation && requestView(this.#delegation),
    };
    other.replaceChildren(h("section", { class: "panel" }, views[this.#tab]?.()));
    this.#timeline.redraw();
  }

  #tabKey(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const names = Object.keys(TABS);
    const at = (names.indexOf(this.#tab) + by + names.length) % names.length;
    this.#choose(names[at]);
    this.#parts.tabs[at].focus();
  }

  /** j and k walk through the tree from anywhere. */
  #key = (event) => {
    const elsewhere = [document.body, this.#parts.title].includes(event.target);
    const by = { j: 1, k: -1 }[event.key];
    if (!elsewhere || !by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.#timeline.scroller.focus();
    this.#timeline.step(by);
  };

  async #download(pressed) {
    pressed.disabled = true;
    await this.#children.openAll();
    const { title, meta, numbers, now } = this.#parts;
    const below = (node) => this.#children.below(node.delegation.id, null);
    const whole = { parts: [title, meta, numbers, now], tree: this.#live, now: this.#now, below };
    save(await fileOf(this.#id, title.textContent, whole), `${this.#id}.html`);
    pressed.disabled = false;
  }
}
