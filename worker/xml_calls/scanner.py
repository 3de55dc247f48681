"""Locates the tool calls in a text, and skips those that are only quoted as code. Scans in linear time.

Everything between ``<tool_call>`` and its own ``</tool_call>`` belongs to that call, CDATA sections and calls inside
its values included. A call without an end extends to the end of the text: a later ``<tool_call>`` may be part of a
value, so it is not a call of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TAG_NAME = r"[^\W\d][\w.-]*+"
OPENING_TAG = r"<tool_call(?=[\s>])[^<>]*+>"
_MARK = r"(?:`{3,}+|~{3,}+)"
_OUTSIDE = re.compile(
    rf"(?P<fence>^[ \t]*+(?P<mark>{_MARK})[^`\n]*+$)|(?P<ticks>`++)|(?P<open>{OPENING_TAG})|(?P<newline>\n++)",
    re.MULTILINE,
)
_INSIDE = re.compile(
    rf"(?P<open>{OPENING_TAG})|(?P<close></tool_call\s*+>)|(?P<fence>^[ \t]*+(?P<mark>{_MARK})[ \t]*+$)"
    rf"|(?P<section>(?:<(?P<tag>{TAG_NAME})[^<>]*+>\s*+)?<!\[CDATA\[)",
    re.MULTILINE,
)
_IN_FENCE = re.compile(rf"(?P<open>{OPENING_TAG})|(?P<fence>^[ \t]*+(?P<mark>{_MARK})[ \t]*+$)", re.MULTILINE)
_SECTION_END = re.compile(rf"\]\]>\s*+</({TAG_NAME})\s*+>")
_MAX_INDENT = 100
"""How many characters before a tag are searched for the beginning of its line."""
_CONTENT = re.compile(r"\s*+(?:<[A-Za-z]|\{|<?\Z)")


@dataclass(frozen=True, slots=True)
class CallElement:
    """The position of a tool call in a text. ``missing`` is the closing tag or mark it lacks, or "".

    ``fenced``: it fills a code fence, alone or with other calls.
    """

    start: int
    end: int
    missing: str = ""
    fenced: bool = False


def find_call_elements(text: str) -> list[CallElement]:
    """Returns the tool calls of a text, in order, without those in inline code or in a fence with other content."""
    if "<tool_call" not in text:
        return []
    tokens = list(_OUTSIDE.finditer(text))
    code_ends = _code_ends(tokens)
    found: list[CallElement] = []
    at = 0
    for number, token in enumerate(tokens):
        if token.start() < at:
            continue
        match token.lastgroup:
            case "fence":
                fenced, at = _scan_fence(text, token.end(), token["mark"])
                found += fenced
            case "ticks":
                at = code_ends.get(number, at)
            case "open" if _begins_call(text, token):
                at, missing = _call_end(text, token.end())
                found.append(CallElement(token.start(), at, missing))
            case _:
                pass
    return found


def _code_ends(tokens: list[re.Match[str]]) -> dict[int, int]:
    """Returns where inline code ends, by the index of its first token: at as many backticks on the same line."""
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


def _begins_call(text: str, opening: re.Match[str]) -> bool:
    """Returns whether the tag begins a call rather than being mentioned in a sentence."""
    start = opening.start()
    _, newline, line = text[max(0, start - _MAX_INDENT) : start].rpartition("\n")
    first_of_line = not line.strip() and (newline != "" or start <= _MAX_INDENT)
    return first_of_line or _CONTENT.match(text, opening.end()) is not None


def _call_end(text: str, at: int, fence: str = "") -> tuple[int, str]:
    """Returns the end of the call that was opened before ``at``, and the closing tag it lacks.

    The end of the fence around it ends it as well, unless that is inside a value; it lacks the fence then.
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
                missing, at = _section_end(text, at, token["tag"])
                if missing:
                    return at, missing
            case _ if fence and _closes_fence(token["mark"], fence):
                return at, fence
            case _:
                pass
    return len(text), "</tool_call>"


def _section_end(text: str, at: int, tag: str | None) -> tuple[str, int]:
    """Returns what a CDATA section lacks, or "", and its end.

    A section that is the whole value of a tag ends where that is closed, so that a ``]]>`` before does not end it.
    """
    if tag is None:
        end = text.find("]]>", at)
        return ("]]>", len(text)) if end < 0 else ("", end + 3)
    closing = value_end(text, at, tag)
    return ("", closing.end()) if closing else (f"]]></{tag}>", len(text))


def value_end(text: str, at: int, tag: str) -> re.Match[str] | None:
    """Returns the end of the section that begins at ``at`` together with the closing tag of its value, or None."""
    return next((end for end in _SECTION_END.finditer(text, at) if end[1] == tag), None)


def _closes_fence(mark: str, fence: str) -> bool:
    return mark[0] == fence[0] and len(mark) >= len(fence)


def _scan_fence(text: str, at: int, fence: str) -> tuple[list[CallElement], int]:
    """Returns the calls that fill a code fence and its end; no calls if it has other content, as examples do."""
    calls: list[CallElement] = []
    calls_only = True
    while token := _IN_FENCE.search(text, at):
        calls_only = calls_only and not text[at : token.start()].strip()
        if token.lastgroup == "fence" and _closes_fence(token["mark"], fence):
            return (calls if calls_only else []), token.end()
        if token.lastgroup == "fence" or not _begins_call(text, token):
            calls_only, at = False, token.end()
            continue
        at, missing = _call_end(text, token.end(), fence)
        if missing == fence:
            return [], at
        calls.append(CallElement(token.start(), at, missing, fenced=True))
    if calls_only and not text[at:].strip():
        return calls, len(text)
    unfinished = [CallElement(call.start, len(text), fence, fenced=True) for call in calls[:1]]
    return unfinished, len(text)
