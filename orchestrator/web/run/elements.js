// Elements that all parts of a delegation's view are made of.

import { open } from "../api.js";
import { block } from "../details.js";
import { h } from "../dom.js";
import { number } from "../numbers.js";
import { visible, visibleBlock } from "../text.js";
import { blocks } from "./markdown.js";

export const span = (style, ...children) => h("span", { class: style }, children);
export const div = (style, ...children) => h("div", { class: style }, children);
export const text = (style, ...children) => h("p", { class: style }, children);
export const code = (value) => h("code", {}, visible(value));
export const button = (words, onclick, more = {}) =>
  h("button", { type: "button", class: "quiet", onclick, ...more }, words);
/** A button that looks like a link and leads to a node of the tree. */
export const toNode = (key, words) => h("button", { type: "button", class: "link", "data-goto": key }, words);

export const list = (label, style, items) =>
  h("ul", { "aria-label": label, class: style }, items.map((item) => h("li", {}, item)));

/** Pairs of a name and a value; those without a value are left out. */
export const facts = (pairs) => h("dl", { class: "facts" },
  pairs.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

/** A changed file: its path, what became of it, and its lines. */
export const changed = ({ path, from, change }, added, removed) => [
  code(from ? `${from} → ${path}` : path), ` ${visible(change)} `,
  typeof added === "number" &&
    span("counts", span("plus", `+${number(added)}`), " ", span("minus", `−${number(removed)}`)),
];

const words = (parts) =>
  parts.map((part) => (typeof part === "string" ? visibleBlock(part) : h(part.name, {}, words(part.parts))));

const MARKDOWN = {
  heading: ({ level, parts }) => h("h4", { class: `level-${level}` }, words(parts)),
  list: ({ start, items }) =>
    h(start === null ? "ul" : "ol", { start }, items.map((item) => h("li", {}, item.map(view)))),
  quote: (quoted) => h("blockquote", {}, quoted.blocks.map(view)),
  pre: (given) => block("Code", visibleBlock(given.text)),
  p: ({ parts }) => h("p", {}, words(parts)),
  hr: () => h("hr"),
};

const view = (each) => MARKDOWN[each.name](each);

/** A text of a model, which may be Markdown: only the elements above, and every text a text node. */
export const prose = (given) => div("prose", blocks(given ?? "").map(view));

/** Saves bytes under a name. */
export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  h("a", { href: address, download: name.replaceAll(/[/\\\0]/gu, "_") }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** A button that downloads what a route of the API answers. */
export function download(path, name, label = "Download") {
  const problem = h("span", { class: "problem", role: "alert" });
  const load = async () => {
    problem.textContent = "";
    try {
      save(await (await open(path)).blob(), name);
    } catch (error) {
      problem.textContent = visible(error.message);
    }
  };
  return [button(label, load, { "aria-label": `${label} ${visible(name)}` }), problem];
}
