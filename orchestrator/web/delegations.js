// The list of delegations, newest first.

import { get, serviceNow } from "./api.js";
import { byId, h, setText, syncList } from "./dom.js";
import { ago, cost, count, cut, visible } from "./text.js";

const STEP = 30;
const MOST = 300;

export const SIGNS = { queued: "○", running: "▶", waiting: "‖", succeeded: "✓", failed: "✗", cancelled: "–" };

export const statusText = ({ status }) => `${SIGNS[status] ?? ""} ${visible(status)}`.trim();

/** What a delegation has taken: `3 turns`, `$0.0031`, `5 min`. */
export function facts(delegation) {
  const { progress, result } = delegation;
  return {
    turns: count(result ? result.turnCount : progress.turn, "turn"),
    cost: cost(result ? result.usage.costUsd : progress.costUsd),
    age: `${ago((serviceNow() - Date.parse(delegation.createdAt)) / 1000)} ago`,
  };
}

export class DelegationList {
  #limit = STEP;
  #items = [];
  #selected = null;

  constructor() {
    byId("delegations-more").addEventListener("click", () => {
      this.#limit = Math.min(MOST, this.#limit + STEP);
      this.refresh().catch(() => {}); // the next refresh shows the trouble
    });
  }

  async refresh() {
    const { items, nextCursor } = await get(`v1/delegations?limit=${this.#limit}`);
    this.#items = items;
    this.#show();
    byId("delegations-more").hidden = nextCursor === null || this.#limit >= MOST;
    byId("delegations-none").hidden = items.length > 0;
  }

  /** Marks the one that is shown. */
  select(id) {
    this.#selected = id;
    this.#show();
  }

  #show() {
    syncList(byId("delegations"), this.#items, {
      key: (item) => item.id,
      create: (item) => this.#create(item),
      update: (node, item) => this.#update(node, item),
      lostFocus: () => byId("delegations-title").focus(),
    });
  }

  #create({ id, request }) {
    const labels = Object.entries(request.labels).map(([name, value]) => `${name}=${value}`);
    const cell = (name, ...children) => h("span", { class: name }, children);
    return h("li", {},
      h("a", { href: `#${id}` },
        cell("status badge"),
        cell("task", cut(request.task, 200)),
        cell("faint meta",
          request.agent && h("span", { class: "item" }, visible(request.agent)),
          labels.map((label) => h("span", { class: "item" }, cut(label, 60))),
          request.parentId && h("span", { class: "item" }, "child")),
        cell("faint turns"), cell("faint cost"), cell("faint age")));
  }

  #update(node, item) {
    const link = node.firstElementChild;
    if (item.id === this.#selected) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    link.querySelector(".status").className = `status badge ${SIGNS[item.status] ? item.status : ""}`;
    setText(link.querySelector(".status"), item.paused ? "‖ paused" : statusText(item));
    for (const [name, text] of Object.entries(facts(item))) setText(link.querySelector(`.${name}`), text);
  }
}
