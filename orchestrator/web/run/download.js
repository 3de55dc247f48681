// One HTML file with all of a delegation, to be read anywhere and at any time. It has no script, and its policy permits
// none, so it is safe whatever a model wrote: every text is a text node, which the browser itself writes as markup.

import { open } from "../api.js";
import { diffView, folded } from "../details.js";
import { h } from "../dom.js";
import { cut } from "../text.js";
import { spanOf } from "./bars.js";
import { div } from "./elements.js";
import { nodeView } from "./inspector.js";
import { axis, axisRow, fillRow, rowParts } from "./timeline.js";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'";
const BATCH = 200;

const meta = (name, content) => h("meta", { name, content });
const rulesOf = (sheet) => [...sheet.cssRules].map((rule) => rule.cssText);

/** Rows may be many, so that the page stays usable in between. */
async function treeView(nodes, span, now, below) {
  const rows = [];
  for (const node of nodes) {
    if (rows.length % BATCH === BATCH - 1) await new Promise((resolve) => setTimeout(resolve));
    const row = rowParts("summary");
    fillRow(row, node, span, now);
    const children = node.kind === "child" ? below(node) : node.children;
    rows.push(h("details", { class: "kept", open: node.kind === "turn" }, row.element,
      div("inspector-body", nodeView(node, now)), await treeView(children, span, now, below)));
  }
  return rows;
}

/** The file as a Blob. `parts` are the elements of the page that are to be above the tree. */
export async function fileOf(id, title, { parts, tree, now, below }) {
  const patch = tree.result?.fileChanges.length ? await open(`v1/delegations/${id}/patch`)
    .then((answer) => answer.text(), (error) => `# ${error.message}`) : "";
  const file = document.implementation.createHTMLDocument(cut(title, 200));
  const span = spanOf(tree, now);
  const policy = h("meta", { "http-equiv": "Content-Security-Policy", content: POLICY });
  file.head.prepend(h("meta", { charset: "utf-8" }), policy, meta("viewport", "width=device-width, initial-scale=1"),
    meta("color-scheme", "light dark"));
  const rows = await treeView(tree.nodes, span, now, below);
  file.body.append(h("main", { class: "run-view kept-file" }, parts.map((part) => part.cloneNode(true)),
    patch && h("section", { class: "panel" }, folded("Patch", diffView(patch))),
    h("section", { class: "timeline panel" }, axisRow(axis(span)), rows)));
  for (const each of file.querySelectorAll(".result .files details")) { // the patch has what they would load
    if (each.childElementCount === 1) each.replaceWith(...each.firstElementChild.childNodes);
  }
  // Without a script a button does nothing: of those that lead to a step only the words stay.
  for (const each of file.querySelectorAll("button")) each.replaceWith(each.matches(".link") ? each.textContent : "");
  const styles = [...document.styleSheets].flatMap(rulesOf).join("\n"); // of the page's own files
  const head = `<head>${file.head.getHTML()}<style>${styles}</style></head>`;
  const markup = `<!doctype html>\n<html lang="en">${head}<body>${file.body.getHTML()}</body></html>\n`;
  return new Blob([markup], { type: "text/html" });
}
