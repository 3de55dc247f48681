"""Where in a text calls stand, and where it only speaks of them; each character is looked at once or twice.

Whatever stands between ``<tool_call>`` and its own ``</tool_call>`` belongs to that call, CDATA sections and calls
inside its values included. Of a call that never ends the rest of the text is a part: nothing after it is taken for
another call, because it may be a value.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

OPENING = r"<tool_call(?=[\s>])[^<>]*+>"
_MARK = r"(?:`{3,}+|~{3,}+)"
_OUTSIDE = re.compile(
    rf"(?P<fence>^[ \t]*+(?P<mark>{_MARK})[^`\n]*+$)|(?P<ticks>`++)|(?P<open>{OPENING})|(?P<newline>\n++)", re.MULTILINE
)
_INSIDE = re.compile(
    rf"(?P<open>{OPENING})|(?P<close></tool_call\s*+>)|(?P<fence>^[ \t]*+(?P<mark>{_MARK})[ \t]*+$)"
    r"|(?P<section>(?:<(?P<tag>[A-Za-z_][\w.-]*+)[^<>]*+>\s*+)?<!\[CDATA\[)",
    re.MULTILINE,
)
_IN_FENCE = re.compile(rf"(?P<open>{OPENING})|(?P<fence>^[ \t]*+(?P<mark>{_MARK})[ \t]*+$)", re.MULTILINE)
SECTION_END = re.compile(r"\]\]>\s*+</([A-Za-z_][\w.-]*+)\s*+>")
_LOOSE_END = re.compile(r"\]\]>\s*+<(?:([A-Za-z_][\w.-]*+)>|/(?:params|tool_call)\b)")
_BARE_END = re.compile(r"[ \t]*+$", re.MULTILINE)
_MARGIN = 100
"""How far back to look for a line's beginning."""
_CONTENT = re.compile(r"\s*+(?:<[A-Za-z]|\{|<?\Z)")


@dataclass(frozen=True, slots=True)
class Attempt:
    """A place in the text where a call was tried. ``missing`` is what it lacks to be complete, or "".

    ``fenced``: it fills a code fence, alone or with other calls. ``bare``: the tool whose name is its tag, where it is
    no ``<tool_call>``.
    """

    start: int
    end: int
    missing: str = ""
    fenced: bool = False
    bare: str = ""


def find_attempts(text: str, tools: Collection[str] = ()) -> list[Attempt]:
    """The calls tried in a text, in order. None are inside inline code, or in a fence that holds other things.

    ``tools``: an element of such a name that has its lines for itself is tried, too, where no call has the right form.
    """
    if "<tool_call" not in text:
        return _bare(text, tools)
    found: list[Attempt] = []
    tokens = list(_OUTSIDE.finditer(text))
    code_ends = _code_ends(tokens)
    at = 0
    for number, token in enumerate(tokens):
        if token.start() < at:
            continue
        match token.lastgroup:
            case "fence":
                fenced, at = _fence(text, token.end(), token["mark"])
                found += fenced
            case "ticks":
                at = code_ends.get(number, at)
            case "open" if _is_tried(text, token):
                at, missing = _end(text, token.end())
                found.append(Attempt(token.start(), at, missing))
            case _:
                pass
    return found


def _bare(text: str, tools: Collection[str]) -> list[Attempt]:
    """Elements named like a tool, outside of code: each from the start of a line to the end of one."""
    names = "|".join(re.escape(tool) for tool in tools if f"<{tool}>" in text)
    if not names:
        return []
    outside = re.compile(rf"{_OUTSIDE.pattern}|^[ \t]*+(?P<bare><(?P<tool>{names})>)", re.MULTILINE)
    found: list[Attempt] = []
    tokens = list(outside.finditer(text))
    code_ends = _code_ends(tokens)
    at = 0
    for number, token in enumerate(tokens):
        if token.start() < at:
            continue
        if token.lastgroup == "fence":
            _, at = _fence(text, token.end(), token["mark"])
        elif token.lastgroup == "ticks":
            at = code_ends.get(number, at)
        elif token["bare"] and (end := _element_end(text, token.end(), f"</{token['tool']}>")):
            found.append(Attempt(token.start("bare"), end, bare=token["tool"]))
            at = end
    return found


def _element_end(text: str, at: int, closing: str) -> int:
    """Behind the first closing tag that ends its line; 0 where there is none."""
    while (start := text.find(closing, at)) >= 0:
        at = start + len(closing)
        if _BARE_END.match(text, at):
            return at
    return 0


def _code_ends(tokens: list[re.Match[str]]) -> dict[int, int]:
    """Where inline code ends, by the number of the token that begins it: at as many backticks on the same line."""
    ends: dict[int, int] = {}
    later: dict[int, int] = {}
    for number in range(len(tokens) - 1, -1, -1):
        token = tokens[number]
        if token.lastgroup in ("newline", "fence"):
            later.clear()
        elif token.lastgroup == "ticks":
            length = token.end() - token.start()
            if length in later:
                ends[number] = later[length]
            later[length] = token.end()
    return ends


def _is_tried(text: str, opening: re.Match[str]) -> bool:
    """Whether a tag begins a call, or is only named in a sentence."""
    start = opening.start()
    _, newline, line = text[max(0, start - _MARGIN) : start].rpartition("\n")
    first_of_line = not line.strip() and (newline != "" or start <= _MARGIN)
    return first_of_line or _CONTENT.match(text, opening.end()) is not None


def _end(text: str, at: int, fence: str = "") -> tuple[int, str]:
    """Where the call that was opened before ``at`` ends, and what it lacks.

    The end of the fence it stands in ends it, too, unless that is inside a value; then it lacks the fence.
    """
    depth = 1
    while token := _INSIDE.search(text, at):
        at = token.end()
        match token.lastgroup:
            case "open":
                depth += 1
            case "close":
                depth -= 1
                if not depth:
                    return at, ""
            case "section":
                closing, at = _section_end(text, at, token["tag"])
                if closing:
                    return at, closing
            case _ if fence and _closes(token["mark"], fence):
                return at, fence
            case _:
                pass
    return len(text), "</tool_call>"


def _section_end(text: str, at: int, tag: str | None) -> tuple[str, int]:
    """Behind a CDATA section; with what is missing where it never ends.

    A section that is all of a value ends where its value does, so that ``]]>`` in the middle does not end it.
    """
    if tag is None:
        end = text.find("]]>", at)
        return ("]]>", len(text)) if end < 0 else ("", end + 3)
    for end in SECTION_END.finditer(text, at):
        if end[1] == tag:
            return "", end.end()
    # the tag may have been forgotten: then the section ends before the next tag, if it has one end only
    call_end = text.find("</tool_call>", at)
    loose = [*_LOOSE_END.finditer(text, at, call_end + 1)] if call_end >= 0 else []
    if loose and loose[0].start() == text.find("]]>", at) and _is_closed(text, loose[0], call_end):
        return "", loose[0].start() + 3
    return f"]]></{tag}>", len(text)


def _is_closed(text: str, loose: re.Match[str], call_end: int) -> bool:
    """Whether what follows a section is a tag that is closed itself, or the end of the parameters."""
    return loose[1] is None or text.find(f"</{loose[1]}>", loose.end(), call_end) >= 0


def _closes(mark: str, fence: str) -> bool:
    return mark[0] == fence[0] and len(mark) >= len(fence)


def _fence(text: str, at: int, fence: str) -> tuple[list[Attempt], int]:
    """The calls that fill a code fence, and where to go on: none where it holds anything else, as examples do."""
    calls: list[Attempt] = []
    alone = True
    while token := _IN_FENCE.search(text, at):
        alone = alone and not text[at : token.start()].strip()
        if token.lastgroup == "fence" and _closes(token["mark"], fence):
            return (calls if alone else []), token.end()
        if token.lastgroup == "fence" or not _is_tried(text, token):
            alone, at = False, token.end()
            continue
        at, missing = _end(text, token.end(), fence)
        if missing == fence:
            return [], at
        calls.append(Attempt(token.start(), at, missing, fenced=True))
    if alone and not text[at:].strip():
        return calls, len(text)
    unfinished = [Attempt(call.start, len(text), fence, fenced=True) for call in calls[:1]]
    return unfinished, len(text)
