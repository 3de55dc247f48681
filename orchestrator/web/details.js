// What a call would do, by the type of its details: edit, execute, mcp, info.

import { h } from "./dom.js";
import { visible, visibleBlock, visibleJson } from "./text.js";

const HASHES = /^(index [0-9a-f]{7})[0-9a-f]*(\.\.[0-9a-f]{7})[0-9a-f]*/gmu;
const DECISIONS = { allow: "only reads", ask: "may change something", deny: "forbidden" };

/** A unified diff, at most so many lines of it. The signs stay, so that colour is not the only difference. */
export function diffView(diff, most = Infinity) {
  const kind = (line) => {
    if (/^(diff |index |--- |\+\+\+ |new file|deleted file|rename |similarity )/u.test(line)) return "file";
    return { "+": "added", "-": "removed", "@": "hunk" }[line[0]] ?? "";
  };
  const lines = visibleBlock(diff).replace(/\n$/u, "").replace(HASHES, "$1$2").split("\n");
  const shown = lines.slice(0, most).map((line) => h("span", { class: `line ${kind(line)}` }, `${line}\n`));
  const more = lines.length - shown.length;
  return block("Change", [shown, more > 0 && `… ${more} more lines\n`], "diff");
}

/** A scrollable block of text, reachable by keyboard. */
export function block(label, children, style = "") {
  return h("pre", { class: style, tabindex: "0", role: "region", "aria-label": label }, children);
}

/** A value as JSON behind a disclosure. */
export function folded(title, children, attributes = {}) {
  return h("details", attributes, h("summary", {}, title), children);
}

const json = (label, value) => block(label, visibleJson(value));
/** The arguments that the addresses do not show already. */
const without = (given, urls) =>
  Object.fromEntries(Object.entries(given ?? {}).filter(([, value]) => !urls.includes(value)));
export const isEmpty = (value) => !value || Object.keys(value).length === 0;

function commandRow({ command, decision, reason }) {
  return h("li", { class: `command ${DECISIONS[decision] ? decision : ""}` },
    h("code", {}, visible(command)),
    h("span", { class: "badge" }, DECISIONS[decision] ?? visible(decision)),
    reason && h("span", { class: "faint" }, visible(reason)));
}

const VIEWS = {
  edit: ({ paths, diff }) => [
    paths.length > 0 && h("p", {}, "Files: ", paths.map((path) => h("code", { class: "item" }, visible(path)))),
    diff ? diffView(diff) : h("p", { class: "faint" }, "The change is known only when the call is executed."),
  ],
  execute: ({ command, commands, effects }) => [
    block("Command", visibleBlock(command), "command-line"),
    commands.length > 0 &&
      h("ul", { class: "commands", "aria-label": "Commands of the line" }, commands.map(commandRow)),
    effects.length > 0 && h("ul", { class: "effects", "aria-label": "Effects" },
      effects.map((effect) => h("li", {}, `It ${visible(effect)}`))),
  ],
  mcp: ({ server, tool, arguments: given }) => [
    h("p", {}, "Tool ", h("code", {}, visible(tool)), " of the MCP server ", h("code", {}, visible(server))),
    !isEmpty(given) && json("Arguments", given),
  ],
  info: ({ urls, arguments: given }, step) => [
    urls.length > 0 && h("ul", { class: "urls", "aria-label": "Addresses" },
      urls.filter((url) => !step.title.includes(url)).map((url) => h("li", {}, h("code", {}, visible(url))))),
    !isEmpty(without(given, urls)) && json("Arguments", without(given, urls)),
  ],
};

/** The details of a permission request. */
export function detailsView({ details, step }) {
  const view = VIEWS[details.type];
  const shown = view ? view(details, step) : [json("Details", details)];
  const known = ["mcp", "info"].includes(details.type) || isEmpty(step.arguments);
  const title = "All arguments";
  return h("div", { class: "details" }, shown, !known && folded(title, json(title, step.arguments)));
}
