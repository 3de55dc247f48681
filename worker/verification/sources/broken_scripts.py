"""Tests in JavaScript and TypeScript in a shape in which each can be made to fail, as those in Python."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from secrets import token_hex

from .broken_functions import Shape

SUFFIXES = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")
_MAX_CHARS, _MAX_TESTS, _MAX_EXPECTED, _MAX_SPAN = 256 * 1024, 500, 20, 32 * 1024
"""Characters of a file, tests in it, expectations of one test, and characters of an expression."""
_TEST = re.compile(
    r"""\b(?:test|it)(?:\.only)?\(\s*(?P<title>"[^"\n]*"|'[^'\n]*'|`[^`$\n]*`)\s*,\s*(?P<begin>)"""
    r"""(?:(?:async\s*)?(?:\(\s*\)\s*=>|function\s*\w*\(\s*\)\s*(?=\{))(?P<body>)"""
    r"""|(?:async\s*)?(?:\([^()]*\)\s*=>|function\s*\w*\([^()]*\))\s*\{(?P<inside>))"""
)
_EXPECTED = re.compile(
    r"\.(?:toBe|toEqual|toStrictEqual|toBeCloseTo|toContain|toHaveLength|toMatchObject)\((?P<only>)(?=[^)\s])"
    r"|\bassert(?:\.strict)?\.(?:equal|strictEqual|deepEqual|deepStrictEqual|same)\((?P<second>)"
    r"|\bassert(?:\.ok)?\((?P<truth>)(?=[^)\s])"
)
_MAY_FAIL = re.compile(r"\bcatch\b|\.not\b|\.rejects\b|[tT]hrows?\b|\bexpect\.any")
"""Where an assertion may be expected to fail, none is broken."""
_PIECE = re.compile(
    r"""//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?|[()\[\]{},;]|\\."""
    r"""|(?<=[(,=:\[!&|?{};\s])/(?![*/\s])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.){0,200}+\]){1,1000}+/"""
    r"""|"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+'|`(?:[^`\\]|\\.)*+`""",
    re.DOTALL,
)
"""What is not closed is looked for in few characters, and an escaped quote opens nothing: else each of many would be
searched for its end through the whole text."""
_HELPER = """
;function {value}(given{any}, number{any}, wrong{default}) {{
  if (number % {divisor} !== {rest}) return given;
  {all}.{seen} += 1;
  if (wrong) return wrong(given);
  if (typeof given === 'boolean') return !given;
  if (typeof given === 'number') return given + 1 === given ? NaN : given + 1;
  return typeof given === 'string' ? given + '!' : Symbol();
}}
function {wrap}(number{any}, work{any}) {{
  return async function ({this}) {{
    {all}.{seen} = 0;
    try {{ return await work.call(this); }} finally {{
      const reached = {all}.{seen} > 0;
      if ({value}(false, number, () => !reached)) throw new Error('{message}');
    }}
  }};
}}
"""


@dataclass(frozen=True, slots=True)
class Script:
    """A rewritten file, and the titles of the tests in it that can be made to fail and are the only ones so called."""

    text: str
    titles: frozenset[str]


def broken_script(text: str, shape: Shape, *, is_typed: bool) -> Script | None:
    """Returns a file of tests rewritten, or None where it has none."""
    if len(text) > _MAX_CHARS:
        return None
    inserted, titles, wrap = list[tuple[int, str]](), list[str](), f"w{token_hex(6)}"
    for found in islice(_TEST.finditer(text), _MAX_TESTS):
        if found["inside"] is not None:
            guard = f" if ({shape.value}(false, {shape.number()}, () => true)) throw new Error('{token_hex(8)}');"
            inserted.append((found.end(), guard))
            continue
        end = _end(text, found.end())
        if end is None or text[end] == ";" or _is_commented(text, found.start()):
            continue
        inserted += [(found.start("begin"), f"{wrap}({shape.number()}, "), (end, ")")]
        inserted += _expectations(text, found.end(), end, shape)
        titles.append(found["title"][1:-1])
    if not inserted:
        return None
    for at, words in sorted(inserted, reverse=True, key=lambda each: each[0]):
        text = f"{text[:at]}{words}{text[at:]}"
    return Script(text + _helpers(shape, wrap, is_typed), frozenset(each for each in titles if titles.count(each) == 1))


def reversed_script(text: str) -> str:
    """Returns a file of tests with those that stand beside each other in reverse."""
    if len(text) > _MAX_CHARS:
        return text
    calls, end = list[tuple[int, int]](), 0
    for found in islice(_TEST.finditer(text), _MAX_TESTS):
        closing = _end(text, text.index("(", found.start()) + 1, is_call=True)
        if found.start() >= end and closing is not None and not _is_commented(text, found.start()):
            end = closing + 1
            calls.append((found.start(), end))
    beside = dict[int, list[tuple[int, int]]]()
    for call, opening in zip(calls, _openings(text, [begin for begin, _ in calls]), strict=True):
        beside.setdefault(opening, []).append(call)
    places = [pair for group in beside.values() for pair in zip(group, reversed(group), strict=True)]
    parts, at = list[str](), 0
    for (begin, end), (first, last) in sorted(places):
        parts += [text[at:begin], text[first:last]]
        at = end
    return "".join([*parts, text[at:]])


def _openings(text: str, places: Sequence[int]) -> list[int]:
    """Returns for each place, in their order, that of the bracket within which it is; -1 outside of all."""
    opened, found = [-1], list[int]()
    for piece in _PIECE.finditer(text):
        while len(found) < len(places) and places[len(found)] < piece.end():
            found.append(opened[-1])
        if piece[0] in ("(", "[", "{"):
            opened.append(piece.start())
        elif piece[0] in (")", "]", "}") and len(opened) > 1:
            opened.pop()
    return found + [opened[-1]] * (len(places) - len(found))


def _is_commented(text: str, at: int) -> bool:
    return text[text.rfind("\n", 0, at) + 1 : at].lstrip().startswith(("//", "*"))


def _helpers(shape: Shape, wrap: str, is_typed: bool) -> str:
    types = {"any": ": any", "default": ": any = null", "this": "this: any", "all": "(globalThis as any)"}
    return _HELPER.format(
        value=shape.value,
        seen=shape.seen,
        divisor=shape.divisor,
        rest=shape.rest,
        wrap=wrap,
        message=token_hex(8),
        **(types if is_typed else {"any": "", "default": "", "this": "", "all": "globalThis"}),
    )


def _expectations(text: str, begin: int, end: int, shape: Shape) -> list[tuple[int, str]]:
    if _MAY_FAIL.search(text, begin, end):
        return []
    inserted = list[tuple[int, str]]()
    for found in islice(_EXPECTED.finditer(text, begin, end), _MAX_EXPECTED):
        first, until = found.end(), _end(text, found.end())
        if found["second"] is not None and until is not None and text[until] == ",":
            first = until + 1
            until = _end(text, first)
        elif found["second"] is not None:
            continue
        if until is not None and until <= end:
            wrong = ", () => false" if found["truth"] is not None else ""
            wrong = ", () => NaN" if "toBeCloseTo" in found[0] else wrong
            inserted += [(first, f"{shape.value}("), (until, f", {shape.number()}{wrong})")]
    return inserted


def _end(text: str, at: int, *, is_call: bool = False) -> int | None:
    """Returns where an expression ends: at a comma or closing bracket outside of all brackets in it.

    ``is_call``: it ends at the bracket that closes a call's arguments.
    """
    depth = 0
    for piece in _PIECE.finditer(text, at, at + _MAX_SPAN):
        char = piece[0]
        if char in ("(", "[", "{"):
            depth += 1
        elif char in (")", "]", "}"):
            depth -= 1
            if depth < 0:
                return piece.start()
        elif char in (",", ";") and depth == 0 and not is_call:
            return piece.start()
    return None
