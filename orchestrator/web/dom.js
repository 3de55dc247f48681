// Elements. Every text becomes a text node and there is no way to pass markup, so foreign text stays text.

/** An element with attributes (`onclick`: a listener) and children: elements and texts. */
export function h(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** What waits until a person has no text of a node selected: the new children, by the node. */
const waiting = new Map();

function isSelected(node) {
  const selection = document.getSelection();
  return Boolean(selection) && !selection.isCollapsed && selection.containsNode(node, true);
}

/** Replaces the children; while text inside is selected, only afterwards: it may be about to be copied. */
export function replace(node, ...children) {
  if (isSelected(node)) waiting.set(node, children);
  else {
    waiting.delete(node);
    node.replaceChildren(...children);
  }
}

/** Replaces what waited, where nothing is selected in it any more. */
export function replaceWaiting() {
  for (const [node, children] of [...waiting]) if (!isSelected(node)) replace(node, ...children);
}

/** Sets a text only where it differs, so that a screen reader does not read it again. */
export function setText(node, text) {
  if (node.textContent !== text) replace(node, text);
  else waiting.delete(node);
}

/** Replaces the children only where their text differs. */
export function refill(node, children) {
  const fresh = h(node.localName, {}, children);
  if (fresh.textContent !== node.textContent) replace(node, ...fresh.childNodes);
  else waiting.delete(node);
}

/**
 * Makes the children of a list those of the items, by their keys. A child that stays is not moved, so it keeps its
 * focus; where the focused one goes, `lostFocus` gets the child that takes its place, or null.
 */
export function syncList(list, items, { key, create, update, lostFocus }) {
  const wanted = new Set(items.map(key));
  for (const node of [...list.children]) {
    if (wanted.has(node.dataset.key)) continue;
    const focused = node.contains(document.activeElement);
    const heir = node.nextElementSibling ?? node.previousElementSibling;
    node.remove();
    if (focused) lostFocus?.(heir);
  }
  const known = new Map([...list.children].map((node) => [node.dataset.key, node]));
  let next = list.firstElementChild;
  for (const item of items) {
    let node = known.get(key(item));
    if (!node) {
      node = create(item);
      node.dataset.key = key(item);
    }
    update?.(node, item);
    if (node === next) next = next.nextElementSibling;
    else list.insertBefore(node, next);
  }
}

/** Lets a screen reader read a text aloud. */
export function announce(text) {
  byId("announcements").textContent = text;
}
