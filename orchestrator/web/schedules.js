// The schedules of the service's settings: what begins next, what began last, and what is paused.

import { get } from "./api.js";
import { byId, h, replace, setText } from "./dom.js";
import { count, cut, shortId, visible } from "./text.js";

const time = (iso) => (iso ? new Date(iso).toLocaleString() : "–");

function scheduleRow({ name, cron, zone, next, last, lastDelegationId, paused, error }) {
  const problem = paused ? `paused: ${visible(cut(paused, 100))}` : error && `not begun: ${visible(cut(error, 100))}`;
  return h("tr", {},
    h("th", { scope: "row" }, visible(name)),
    h("td", {}, `${visible(cron)} ${visible(zone)}`),
    h("td", { class: problem ? "problem" : "" }, problem || time(next)),
    h("td", {}, time(last), " ",
      lastDelegationId && h("a", { href: `#${encodeURIComponent(lastDelegationId)}` }, shortId(lastDelegationId))));
}

let shown = "";

export async function refreshSchedules() {
  const schedules = await get("v1/schedules");
  const key = JSON.stringify(schedules);
  if (key === shown) return;
  shown = key;
  byId("schedules").hidden = schedules.length === 0;
  setText(byId("schedules").querySelector("summary"), count(schedules.length, "schedule"));
  replace(byId("schedules").querySelector("tbody"), ...schedules.map(scheduleRow));
}
