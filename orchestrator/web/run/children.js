// The child delegations of one that is shown: which there are, and the trees of those that were opened.

import { coalesced, get } from "../api.js";
import { Tree, treeOf } from "./tree.js";

const POLL_MS = 2000;
const FIND_MS = 1000;

/** The path of the events after those that are known. */
export const eventsPath = (id, known) => `v1/delegations/${id}/events?lines=true&after=${known.at(-1)?.seq ?? 0}`;

export class Children {
  all = [];
  #opened = new Map();
  #id;
  #onChange;
  #closed = false;

  /** `onChange()` is called where there is something new. */
  constructor(id, onChange) {
    this.#id = id;
    this.#onChange = onChange;
  }

  close() {
    this.#closed = true;
  }

  find = coalesced(async () => {
    try {
      this.all = (await get(`v1/delegations?parent=${this.#id}&limit=500`)).items.reverse();
    } catch {
      return; // the next event of a child asks again
    }
    if (!this.#closed) this.#onChange();
  }, FIND_MS);

  /** Loads the events of a child, and those to come: by questions, as a browser has few connections to a service. */
  async open(id) {
    if (this.#opened.has(id)) return;
    const known = { events: [], tree: new Tree(`${id}-`) };
    this.#opened.set(id, known);
    while (!this.#closed && !known.tree.result) {
      const visible = document.visibilityState === "visible";
      const more = visible ? await get(eventsPath(id, known.events)).catch(() => []) : [];
      for (const event of more) known.tree.add(event);
      known.events.push(...more);
      if (more.length && !this.#closed) this.#onChange();
      if (!known.tree.result) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  /** Opens all that have ended, so that a file has them. */
  async openAll() {
    await Promise.all(this.all.filter(({ finishedAt }) => finishedAt).map(({ id }) => this.open(id)));
  }

  /** The nodes of a child that was opened, as they were at a time, or are with null. */
  below(id, until) {
    const known = this.#opened.get(id);
    if (!known || until === null) return known?.tree.nodes ?? [];
    return treeOf(known.events.filter(({ at }) => Date.parse(at) <= until), `${id}-`).nodes;
  }

  /** Hangs them into a tree, those there were at a time. */
  attach(tree, until) {
    for (const child of this.all) {
      if (until === null || Date.parse(child.createdAt) <= until) tree.attach(child, this.#id);
    }
  }
}
