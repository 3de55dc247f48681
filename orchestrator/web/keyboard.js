// Keys: j and k walk through the rows, / searches, n begins a task, ? explains.

import { byId } from "./dom.js";

const isTyping = (node) => node.matches("input:not([type=checkbox]), textarea, select, [contenteditable]");

/** What can be walked through: cards that wait, then rows. */
const stops = () => [...document.querySelectorAll(".disclosure, .row-link")].filter((node) => node.checkVisibility());

function walk(step) {
  const all = stops();
  const at = all.indexOf(document.activeElement);
  const next = at < 0 ? all[step > 0 ? 0 : all.length - 1] : all[at + step];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

/** Listens for the keys; `navigate` takes an address. */
export function handleKeys(navigate) {
  const help = byId("help");
  const search = () => {
    const focus = () => byId("search").focus();
    if (byId("fleet").hidden) {
      window.addEventListener("hashchange", focus, { once: true }); // after the view has changed
      navigate("#");
    } else focus();
  };
  const back = () => {
    if (document.activeElement === byId("search")) byId("search").blur();
    else if (byId("fleet").hidden) navigate("#");
  };
  const walking = (step) => () => !byId("fleet").hidden && walk(step);
  const keys = {
    j: walking(1), k: walking(-1), n: () => navigate("#new"), f: () => navigate("#"), "/": search,
    "?": () => help.showModal(), Escape: back,
  };
  // On the window, after a view has had the chance to use the key itself.
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open || event.defaultPrevented) return;
    if (isTyping(event.target) && event.key !== "Escape") return;
    if (isTyping(event.target) && event.target !== byId("search")) return;
    const act = byId("content").hidden ? null : keys[event.key];
    if (act && act() !== false) event.preventDefault();
  });
  byId("help-open").addEventListener("click", () => help.showModal());
  help.addEventListener("click", (event) => event.target === help && help.close());
}
