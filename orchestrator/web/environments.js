// What workers have prepared for the commands of runs, or are preparing: how large it is, when it was used last,
// and who has it.

import { get } from "./api.js";
import { byId, h, refill, setText } from "./dom.js";
import { age, duration, number } from "./numbers.js";
import { count, visible } from "./text.js";

function environmentRow({ environment, key, state, bytes, seconds, usedAt, workers }) {
  const digest = key.slice(environment.length + 1);
  return h("tr", {},
    h("th", { scope: "row" }, visible(environment)),
    h("td", {}, visible(digest.slice(0, 12))),
    h("td", {}, state),
    h("td", {}, state === "ready" && `${number(Math.ceil(bytes / 1e6))} MB`),
    h("td", {}, state !== "failed" && duration(seconds * 1000)),
    h("td", {}, age(Date.parse(usedAt), Date.now())),
    h("td", {}, workers.map(visible).join(", ")));
}

export async function refreshEnvironments() {
  const environments = await get("v1/environments");
  byId("environments").hidden = environments.length === 0;
  const inState = (wanted) => environments.filter(({ state }) => state === wanted).length;
  const others = ["preparing", "failed"].filter(inState).map((state) => `${number(inState(state))} ${state}`);
  const summary = [count(inState("ready"), "prepared environment"), ...others].join(", ");
  setText(byId("environments").querySelector("summary"), summary);
  refill(byId("environments").querySelector("tbody"), environments.map(environmentRow));
}
