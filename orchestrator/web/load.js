// The fleet's load: how much is running and queued, the workers, and what today has cost.

import { get } from "./api.js";
import { byId, h, replace, setText } from "./dom.js";
import { refreshEnvironments } from "./environments.js";
import { age, compact, money, number, tokensIn } from "./numbers.js";
import { refreshSchedules } from "./schedules.js";
import { count, visible } from "./text.js";

/** A bar whose length is a part of its track; styles may be set by a program, but not be attributes. */
function gauge(part, label) {
  const fill = h("span", {});
  fill.style.width = `${Math.round(Math.min(1, part) * 100)}%`;
  return h("span", { class: part >= 1 ? "gauge full" : "gauge", role: "img", "aria-label": label }, fill);
}

function workerRow({ name, draining, model, running, concurrency, sandbox, usage, version, startedAt }) {
  return h("tr", {},
    h("th", { scope: "row" }, visible(name), draining && h("span", { class: "faint" }, " takes no more")),
    h("td", {}, visible(model)),
    h("td", {}, gauge(running / concurrency, `${running} of ${concurrency}`),
      ` ${number(running)}/${number(concurrency)}`),
    h("td", { class: sandbox ? "problem" : "" }, sandbox ? `no commands: ${visible(sandbox)}` : "sandbox ready"),
    h("td", {}, `${compact(tokensIn(usage))} tokens`),
    h("td", {}, visible(version)),
    h("td", {}, age(Date.parse(startedAt), Date.now())));
}

/** What an endpoint with a limit serves, and what waits for it, or for places in workers. */
export function capacityText({ endpoint, model, key, spent, rate, served, refused, waiting, owners, until },
  now = Date.now()) {
  const later = until && Date.parse(until) > now;
  const name = visible(model) + (key ? `, key ${number(key)}` : "");
  if (spent && later) return `${name} · spend limit reached until ${new Date(until).toLocaleString()}`;
  const of = endpoint === "workers" ? ["Places in workers"] : [name,
    rate !== null && `${number(rate)} requests/s`, `${number(served)} served`, `${number(refused)} refused`];
  const whose = Object.entries(owners).map(([owner, own]) => `${visible(owner)} ${number(own)}`).join(", ");
  return [...of, `${number(waiting)} waiting${whose && ` (${whose})`}`,
    later && `no capacity until ${new Date(until).toLocaleTimeString()}`].filter(Boolean).join(" · ");
}

/** Why a queued delegation cannot begin, or "". */
export const holdOf = (workers) => (workers.some(({ draining }) => !draining) ? "" :
  workers.length ? "every worker is draining" : "no worker is alive");

const tile = (term, value, more = null) =>
  h("div", { class: "tile" }, h("dt", {}, term), h("dd", {}, h("strong", {}, value), more && h("span", {}, more)));

export class Load {
  #shown = "";
  #onCounts;

  /** `onCounts` gets how many delegations there are of each status, and why none can begin, or "". */
  constructor(onCounts) {
    this.#onCounts = onCounts;
  }

  async refresh() {
    await Promise.all([refreshSchedules(), refreshEnvironments()]);
    const today = new Date();
    today.setHours(0, 0, 0, 0);
    const [workers, capacity, counts, { total }] = await Promise.all([get("v1/workers"), get("v1/capacity"),
      get("v1/delegations:count"), get(`v1/cost?since=${encodeURIComponent(today.toISOString())}`)]);
    this.#onCounts(counts, holdOf(workers));
    const key = JSON.stringify([workers, capacity, counts, total]);
    if (key === this.#shown) return;
    this.#shown = key;
    const draining = workers.filter((worker) => worker.draining).length;
    const running = workers.reduce((sum, worker) => sum + worker.running, 0);
    const slots = workers.reduce((sum, worker) => sum + (worker.draining ? worker.running : worker.concurrency), 0);
    const { usage, unpriced } = total;
    replace(byId("load"),
      tile("Workers", number(workers.length), draining ? `${number(draining)} draining` : !slots && "none is alive"),
      tile("Places taken", number(running),
        slots > 0 && [` of ${number(slots)} `, gauge(running / slots, `${running} of ${slots} places taken`)]),
      tile("In the queue", number(counts.queued)),
      tile("Cost today", money(usage.costUsd),
        [` ${compact(tokensIn(usage))} tokens`, unpriced && `, ${count(unpriced, "price")} unknown`]
          .filter(Boolean).join("")));
    byId("capacity").hidden = capacity.length === 0;
    replace(byId("capacity"), ...capacity.map((endpoint) => h("li", {}, capacityText(endpoint))));
    byId("workers").hidden = workers.length === 0;
    setText(byId("workers").querySelector("summary"), count(workers.length, "worker"));
    replace(byId("workers").querySelector("tbody"), ...workers.map(workerRow));
  }
}
