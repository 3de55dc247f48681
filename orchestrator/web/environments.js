// What workers have prepared for the commands of runs: how large it is, when it was used last, and who has it.

import { get } from "./api.js";
import { byId, h, refill, setText } from "./dom.js";
import { age, duration, number } from "./numbers.js";
import { count, visible } from "./text.js";

function environmentRow({ environment, key, bytes, seconds, usedAt, workers }) {
  const digest = key.slice(environment.length + 1);
  return h("tr", {},
    h("th", { scope: "row" }, visible(environment)),
    h("td", {}, visible(digest.slice(0, 12))),
    h("td", {}, `${number(Math.ceil(bytes / 1e6))} MB`),
    h("td", {}, duration(seconds * 1000)),
    h("td", {}, age(Date.parse(usedAt), Date.now())),
    h("td", {}, workers.map(visible).join(", ")));
}

export async function refreshEnvironments() {
  const environments = await get("v1/environments");
  byId("environments").hidden = environments.length === 0;
  setText(byId("environments").querySelector("summary"), count(environments.length, "prepared environment"));
  refill(byId("environments").querySelector("tbody"), environments.map(environmentRow));
}
