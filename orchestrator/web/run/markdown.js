// Markdown as a tree of blocks: headings, lists, quotes, code, emphasis. No links, no images, no HTML. No document.

const MOST_CHARS = 100_000;
const MOST_INLINE = 20_000;
const MOST_PLAIN = 2000;
const MOST_DEPTH = 6;
// Bounded, so that no text takes more than a moment. Words as snake_case, sums as 2 * 3 and patterns as **/*.py have
// no emphasis in them.
const SPANS = new RegExp([
  "(?<tick>`{1,3})(?!`)(?<code>.{0,500}?[^`])\\k<tick>(?!`)",
  "(?<![\\w/])\\*\\*(?=[^\\s/])(?<strong>.{0,500}?\\S)\\*\\*(?![\\w*])|(?<!\\w)__(?=\\S)(?<bold>.{0,500}?\\S)__(?!\\w)",
  "(?<![\\w*/])\\*(?=[^\\s/.])(?<em>[^*]{0,500}?[^\\s*])\\*(?![\\w*])",
  "(?<!\\w)_(?=\\S)(?<italic>[^_]{0,500}?\\S)_(?!\\w)",
  "!?\\[(?<label>[^[\\]\\n]{1,500})\\]\\((?<address>[^()\\s]{1,2000})\\)",
  "\\\\(?<plain>[\\\\`*_[\\]#-])",
].join("|"), "gsu");

/** The parts of a paragraph: texts, and `{name, parts}` of `strong`, `em`, `code`. A link is its text and address. */
export function inline(text) {
  if (text.length > MOST_INLINE) return [text];
  const parts = [];
  let done = 0;
  for (const { index, 0: whole, groups } of text.matchAll(SPANS)) {
    const { code, strong = groups.bold, em = groups.italic, label, address, plain } = groups;
    if (index > done) parts.push(text.slice(done, index));
    if (code) parts.push({ name: "code", parts: [code.replace(/^ (.*) $/su, "$1")] });
    else if (strong) parts.push({ name: "strong", parts: inline(strong) });
    else if (em) parts.push({ name: "em", parts: inline(em) });
    else parts.push(plain ?? (label === address ? label : `${label} (${address})`));
    done = index + whole.length;
  }
  if (done < text.length) parts.push(text.slice(done));
  return parts;
}

const BULLET = /^\s*(?:[-*+]|(?<number>\d{1,9})[.)])\s+/u;
const FENCE = /^\s*(?<mark>```+|~~~+)/u;
const HEADING = /^\s{0,3}(?<marks>#{1,6})\s+(?<words>.*?)[\s#]*$/u;
const RULE = /^\s{0,3}([-*_])(?:\s*\1){2,}\s*$/u;
const QUOTE = /^\s*> ?/u;
const TABLE = /^\s*\|/u;
const indentOf = (line) => line.length - line.trimStart().length;
const begins = (line) => [FENCE, HEADING, RULE, QUOTE, TABLE, BULLET].some((each) => each.test(line));

/** The blocks of a text: `{name}` with `text` (pre), `level` and `parts` (heading), `parts` (p), `items`, `blocks`. */
export function blocks(text, depth = 0) {
  if (text.length > MOST_CHARS || depth > MOST_DEPTH) return [{ name: "pre", text }];
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const found = [];
  let at = 0;
  const take = (belongs) => {
    const first = at;
    while (at < lines.length && belongs(lines[at], at)) at += 1;
    return lines.slice(first, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    const { mark } = FENCE.exec(line)?.groups ?? {};
    const { marks, words } = HEADING.exec(line)?.groups ?? {};
    if (!line.trim()) at += 1;
    else if (mark) {
      at += 1;
      found.push({ name: "pre", text: take((each) => !each.trim().startsWith(mark)).join("\n") });
      at += 1;
    } else if (marks) found.push({ name: "heading", level: marks.length, parts: inline(words) }) && (at += 1);
    else if (RULE.test(line)) found.push({ name: "hr" }) && (at += 1);
    else if (TABLE.test(line)) found.push({ name: "pre", text: take((each) => TABLE.test(each)).join("\n") });
    else if (QUOTE.test(line)) {
      const quoted = take((each) => QUOTE.test(each)).map((each) => each.replace(QUOTE, ""));
      found.push({ name: "quote", blocks: blocks(quoted.join("\n"), depth + 1) });
    } else if (BULLET.test(line)) {
      const { number } = BULLET.exec(line).groups;
      const base = indentOf(line);
      const below = (each) => each.trim() && indentOf(each) > base;
      const inside = (each, index) => below(each) || (!each.trim() && lines.slice(index, index + 3).some(below));
      const items = [];
      for (let bullet; at < lines.length && (bullet = BULLET.exec(lines[at])); ) {
        if (!bullet.groups.number !== !number) break;
        const first = lines[at].slice(bullet[0].length);
        at += 1;
        const more = take(inside).map((each) => each.slice(Math.min(indentOf(each), base + 2)));
        items.push(blocks([first, ...more].join("\n"), depth + 1));
      }
      found.push({ name: "list", start: number ?? null, items });
    } else {
      at += 1;
      const more = take((each) => each.trim() && !begins(each));
      found.push({ name: "p", parts: inline([line, ...more].join("\n")) });
    }
  }
  return found;
}

const wordsOf = (each) => (typeof each === "string" ? each :
  [each.text, each.parts, ...each.items ?? [], each.blocks].flat().filter(Boolean).map(wordsOf)
    .join(each.parts ? "" : " "));

/** The beginning of a text without its signs of Markdown, for one line. */
export const plain = (text) => blocks(text.slice(0, MOST_PLAIN)).map(wordsOf).join(" ");
