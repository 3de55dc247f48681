// The filters of the fleet: their address, and the chips that set and remove them.

import { inWords, STATES, stateOf } from "./delegations.js";
import { byId, h } from "./dom.js";
import { number } from "./numbers.js";
import { cut, visible } from "./text.js";

export const FILTERS = ["status", "label", "session", "text", "review"];

/** The address of the fleet with these filters. */
export function fleetAddress(filters) {
  const given = FILTERS.filter((name) => filters[name]).map((name) => [name, filters[name]]);
  return given.length ? `#?${new URLSearchParams(given)}` : "#";
}

/** Shows a chip for each state, with its amount where `counted` has it, one for results to review, and what is set. */
export function showFilters(filters, counted, items) {
  const { status, review } = filters;
  const chip = ([text, isSet, changes]) => h("a", {
    class: "chip", href: fleetAddress({ ...filters, ...changes }), "aria-current": isSet && "true",
  }, text);
  const counts = { ...counted, asking: 0 };
  for (const item of items) {
    if (stateOf(item) !== "asking") continue;
    counts[item.status] -= 1;
    counts.asking += 1;
  }
  const all = counted && STATES.reduce((sum, each) => sum + counts[each], 0);
  // They count what the service has: of a part of it, the amounts are not known.
  const whole = counted && !["label", "session", "text"].some((name) => filters[name]);
  const amount = (value) => (whole ? ` ${number(value)}` : "");
  const shown = STATES.filter((each) => !counted || counts[each] || each === status);
  const states = [["", `All${amount(all)}`], ...shown.map((each) => [each, `${inWords(each)}${amount(counts[each])}`])];
  const chips = states.map(([name, text]) => [text, name === status && !review, { status: name, review: "" }]);
  chips.push(["For review", Boolean(review), { status: "", review: "true" }]);
  const set = ["label", "session"].filter((name) => filters[name]).map((name) =>
    [{ ...filters, [name]: "" }, `${name} ${filters[name]}`]);
  const key = JSON.stringify([chips, set, filters]);
  const nav = byId("filters");
  if (nav.dataset.shown === key) return; // so that a focused one stays
  const focused = [...nav.children].indexOf(document.activeElement);
  nav.dataset.shown = key;
  nav.replaceChildren(...chips.map(chip), ...set.map(([rest, text]) =>
    h("a", { class: "chip set", href: fleetAddress(rest), "aria-label": `Remove the filter ${visible(text)}` },
      cut(text, 60), " ✕")));
  nav.children[focused]?.focus();
}
