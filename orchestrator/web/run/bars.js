// Where bars lie on the time axis, and how strong the colour of a cost is. No document.

const TICKS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400]
  .map((seconds) => seconds * 1000);
const DAY = 86_400_000;
const QUEUE_PART = 0.2;

/**
 * The span of time that is drawn. A queue that took longer than a fifth of the work is drawn from its last part on, so
 * that the work can be seen.
 */
export function spanOf(tree, now) {
  const until = Math.max(tree.result ? tree.last : now, tree.start + 1);
  if (tree.begun === null) return { from: tree.start, to: until };
  const work = Math.max(until - tree.begun, 1);
  return { from: Math.max(tree.start, tree.begun - work * QUEUE_PART), to: until };
}

/** The time up to which a run is drawn that goes on: somewhat later, so that its bars move only now and then. */
export function ahead(tree, now) {
  const from = tree.begun ?? tree.start;
  const step = 2 ** Math.floor(Math.log2(Math.max(now - from, 4000) / 8));
  return from + (Math.floor((now - from) / step) + 1) * step;
}

/** `{left, width}` in percent; `open`: it goes on; `cut`: it began before the span. */
export function barOf(node, { from, to }, now) {
  const place = (at) => Math.min(100, Math.max(0, ((at - from) / (to - from)) * 100));
  const left = place(node.start);
  const end = Math.max(node.end ?? now, node.start);
  return { left, width: place(end) - left, open: node.end === null, cut: node.start < from };
}

/** The marks of the axis: `{left, ms}`, `ms` since its beginning, at most `most`. */
export function ticksOf({ from, to }, most = 6) {
  const size = TICKS.find((each) => (to - from) / each <= most) ?? Math.ceil((to - from) / most / DAY) * DAY;
  const marks = [];
  for (let ms = 0; ms <= to - from; ms += size) marks.push({ left: (ms / (to - from)) * 100, ms });
  return marks;
}

/** For each key its cost as a part of the highest one, from 0 to 1. */
export function heats(nodes) {
  const costs = nodes.filter((node) => typeof node.cost === "number");
  const highest = costs.reduce((most, node) => Math.max(most, node.cost), 0);
  return new Map(costs.map((node) => [node.key, highest > 0 ? node.cost / highest : 0]));
}
