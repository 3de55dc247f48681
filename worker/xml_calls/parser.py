"""Parses the tool calls in a model's text, and repairs those that deviate from the form in one possible reading.

Calls are located first, in linear time, and those skipped that are only quoted as code. Everything between
``<tool_call>`` and its own ``</tool_call>`` belongs to that call, CDATA sections and calls inside its values included.
A call without an end extends to the end of the text: a later ``<tool_call>`` may be part of a value, so it is not a
call of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from ..models.base import ToolSpec
from ..strict_json import loads
from .instruction import FORM, JSON_TYPES, cdata, declared_types, example_call

MAX_PARAMETERS = 100
_UNKNOWN_NAME = "tool_call"
_TAG_NAME = r"[^\W\d][\w.-]*+"
_OPENING_TAG = r"<tool_call(?=[\s>])[^<>]*+>"
_MARK = r"(?:`{3,}+|~{3,}+)"
_OUTSIDE = re.compile(
    rf"(?P<fence>^[ \t]*+(?P<mark>{_MARK})[^`\n]*+$)|(?P<ticks>`++)|(?P<open>{_OPENING_TAG})|(?P<newline>\n++)",
    re.MULTILINE,
)
_INSIDE = re.compile(
    rf"(?P<open>{_OPENING_TAG})|(?P<close></tool_call\s*+>)|(?P<fence>^[ \t]*+(?P<mark>{_MARK})[ \t]*+$)"
    rf"|(?P<section>(?:<(?P<tag>{_TAG_NAME})[^<>]*+>\s*+)?<!\[CDATA\[)",
    re.MULTILINE,
)
_IN_FENCE = re.compile(rf"(?P<open>{_OPENING_TAG})|(?P<fence>^[ \t]*+(?P<mark>{_MARK})[ \t]*+$)", re.MULTILINE)
_SECTION_END = re.compile(rf"\]\]>\s*+</({_TAG_NAME})\s*+>")
_MAX_INDENT = 100
"""How many characters before a tag are searched for the beginning of its line."""
_CONTENT = re.compile(r"\s*+(?:<[A-Za-z]|\{|<?\Z)")
_BEGIN = re.compile(
    r"<tool_call\s*+>\s*+<name\s*+>\s*+(?:<!\[CDATA\[)?\s*+([^<>\[\]&\s]{1,128}+)\s*+(?:\]\]>)?\s*+</name\s*+>"
)
_END = re.compile(r"</tool_call\s*+>\Z")
_OPEN_PARAMS = re.compile(r"\s*+<params\s*+(/?)>")
_CLOSE_PARAMS = re.compile(r"\s*+</params\s*+>")
_OPEN_PARAMETER = re.compile(rf"\s*+<({_TAG_NAME})([^<>]*+)>")
_OPEN_SECTION = re.compile(r"\s*+<!\[CDATA\[")
_REFERENCE = re.compile(r"&(?:lt|gt|amp|quot|apos|#\d++|#x[0-9a-fA-F]++);")
_UNESCAPED = re.compile(rf"<|&(?!{_REFERENCE.pattern[1:]})")
_STRUCTURE = re.compile(r"</?(?:tool_call|params)\b|<!\[CDATA\[")
_ESCAPE = "\U0010fffd"
_PRIVATE_USE = 0x100000
_INVALID = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010fffc\U0010fffe-\U0010ffff]")
_ESCAPED = re.compile(f"{_ESCAPE}(.)", re.DOTALL)
_LOOKS_TYPED = re.compile(r"true|false|-?(?:0|[1-9]\d*+)(?:\.\d++)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call in a text. ``raw_text`` is its source, ``warnings`` describe repairs.

    With a ``problem`` it cannot be executed: ``params`` is empty, and the problem shows the right form.
    """

    name: str
    params: dict[str, Any]
    raw_text: str = ""
    warnings: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A reply's text without its calls, and the calls, in order."""

    text: str
    calls: list[ToolCall] = field(default_factory=list[ToolCall])


class XMLToolCallParser:
    """Parses calls of these tools; their schemas declare the types of values, which are otherwise inferred."""

    def __init__(self, tools: Sequence[ToolSpec] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def parse_tool_calls(self, text: str) -> list[ToolCall]:
        """Returns the executable calls, in order. Never raises."""
        return self.parse_reply(text, problems=False).calls

    def parse_reply(self, text: str, *, problems: bool = True) -> ParsedReply:
        """Separates text and calls. A call with a problem is a call, or, with ``problems`` false, text."""
        texts: list[str] = []
        calls: list[ToolCall] = []
        at = 0
        for element in find_call_elements(text):
            call = self._call(text[element.start : element.end], element)
            if call is None or (call.problem and not problems):
                continue
            texts.append(text[at : element.start])
            calls.append(call)
            at = element.end
        texts.append(text[at:])
        return ParsedReply("".join(texts).strip(), calls)

    def _call(self, raw: str, element: CallElement) -> ToolCall | None:
        """Returns the call, or None for an example in a code fence that is not a correct call of a known tool."""
        if element.missing:
            return self._invalid_call(
                raw,
                f"it is not complete: {element.missing} is missing, probably because the reply was cut off. Nothing "
                "after its beginning was executed, either",
            )
        parsed = _CallReader(raw)
        try:
            parsed.read()
        except CallSyntaxError as error:
            return None if element.fenced else self._invalid_call(raw, str(error))
        if element.fenced:
            if parsed.warnings or (self._tools and parsed.name not in self._tools):
                return None
            parsed.warnings.append("The call was in a code fence; write calls outside of code fences.")
        tool = self._tools.get(parsed.name)
        schema = tool.schema if tool else {}
        params = {name: coerce(text, declared_types(schema, name)) for name, text in parsed.values}
        return ToolCall(parsed.name, params, raw, tuple(parsed.warnings))

    def _invalid_call(self, raw: str, reason: str) -> ToolCall:
        found = _BEGIN.match(raw)
        name = found[1] if found else _UNKNOWN_NAME
        tool = self._tools.get(name)
        problem = (
            f"this call was not executed, because {reason}. Write it again, complete, in this form; if it is long, in "
            f"smaller pieces:\n{example_call(tool) if tool else FORM}"
        )
        return ToolCall(name, {}, raw, problem=problem)


def parse_tool_calls(text: str, tools: Sequence[ToolSpec] = ()) -> list[ToolCall]:
    """Returns the executable calls of a text, in order. Never raises."""
    return XMLToolCallParser(tools).parse_tool_calls(text)


def coerce(text: str, types: frozenset[str]) -> Any:
    """Returns the value of a text.

    A string stays verbatim, blanks included; all other types are JSON. A text that matches no declared type stays a
    string, so that the tool's validation reports it. Without a declared type, booleans, integers and decimals are
    inferred.
    """
    if not types:
        types = frozenset(("boolean", "number") if _LOOKS_TYPED.fullmatch(text) else ("string",))
    if "string" in types:
        types &= {"array", "object"}
    try:
        value = loads(text) if types else text
    except ValueError:
        return text
    name = JSON_TYPES[type(value)]
    return value if name in types or (name == "integer" and "number" in types) else text


class CallSyntaxError(Exception):
    """The call cannot be parsed, or is ambiguous. The message names the place."""


class _CallReader:
    """Reads one call, from its ``<tool_call>`` to its ``</tool_call>``, with a warning for each repair.

    ElementTree parses each parameter. Repaired is what has a single possible reading: values outside of CDATA, a
    ``]]>`` in a value, and a missing ``<params>``.
    """

    def __init__(self, raw: str) -> None:
        self.name = ""
        self.values: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self._raw = raw
        self._at = 0
        self._without_cdata: list[str] = []

    def read(self) -> None:
        """Reads the name and the values. Raises CallSyntaxError."""
        begin, end = self._match(_BEGIN), _END.search(self._raw)
        if begin is None or end is None:
            raise CallSyntaxError("it does not begin with <tool_call> and <name>TOOL</name>")
        self.name, self._raw = begin[1], self._raw[: end.start()]
        self._read_params()
        counts = Counter(name for name, _ in self.values)
        if duplicates := [name for name, count in counts.items() if count > 1]:
            raise CallSyntaxError(f"{', '.join(duplicates)} occurs more than once")
        if self._without_cdata:
            names = ", ".join(self._without_cdata)
            self.warnings.append(f"{names}: not in CDATA, so taken verbatim. Write every value as <![CDATA[value]]>.")

    def _read_params(self) -> None:
        opened = self._match(_OPEN_PARAMS)
        closed = opened is not None and opened[1] == "/"
        while not closed and (found := self._match(_OPEN_PARAMETER)):
            if len(self.values) == MAX_PARAMETERS:
                raise CallSyntaxError(f"it has more than {MAX_PARAMETERS} parameters")
            self.values.append(self._parameter(found[1], found[2]))
        closed = closed or self._match(_CLOSE_PARAMS) is not None
        if rest := self._raw[self._at :].strip():
            raise CallSyntaxError(f"it cannot be parsed from here on: {rest[:200]}")
        if not opened and (self.values or closed):
            self.warnings.append("<params> was missing around the parameters.")
        elif opened and not closed:
            self.warnings.append("</params> was missing after the parameters.")

    def _parameter(self, tag: str, attributes: str) -> tuple[str, str]:
        if attributes.endswith("/"):
            content, attributes = "", attributes.removesuffix("/")
        else:
            label = f"{tag}{attributes[:100]}"
            content = self._section(tag, label) if self._match(_OPEN_SECTION) else self._text(tag, label)
        try:
            element = ElementTree.fromstring(_escaped(f"<{tag}{attributes}>{content}</{tag}>"))  # noqa: S314 - no DTD
        except ElementTree.ParseError as error:
            raise CallSyntaxError(f"<{tag}{attributes[:100]}> is not valid XML: {error}") from None
        name = tag
        if element.attrib:
            if tag != "param" or [*element.attrib] != ["name"]:
                raise CallSyntaxError(f"<{tag}> has attributes")
            name = _unescaped(element.attrib["name"])  # the form for names that are not valid tags
        return name, _unescaped(element.text or "")

    def _section(self, tag: str, label: str) -> str:
        """Returns a value in CDATA. It ends at the ``]]>`` before its closing tag, so it may contain others."""
        end = _value_end(self._raw, self._at, tag)
        if end is None:
            raise CallSyntaxError(f"<{tag}> is not closed by ]]></{tag}>")
        sections = self._raw[self._at : end.start()].split("]]><![CDATA[")
        self._at = end.end()
        for section in sections:
            _, stray, rest = section.partition("]]>")
            if stray and _STRUCTURE.search(rest):
                raise CallSyntaxError(
                    f"the end of {label} is ambiguous: the value contains ]]>; write that as ]]]]><![CDATA[>"
                )
            if stray:
                self.warnings.append(f"{label}: ]]> was read as part of the value; write that as ]]]]><![CDATA[>.")
        return cdata("".join(sections))

    def _text(self, tag: str, label: str) -> str:
        """Returns a value outside of CDATA: as it is where it has character references, else as CDATA."""
        closing = re.compile(rf"</{re.escape(tag)}\s*+>")
        end = closing.search(self._raw, self._at)
        if end is None:
            raise CallSyntaxError(f"<{tag}> is not closed by </{tag}>")
        text, self._at = self._raw[self._at : end.start()], end.end()
        if "<![CDATA[" in text or "]]>" in text:
            raise CallSyntaxError(f"only part of {label} is in CDATA")
        unescaped, reference = _UNESCAPED.search(text), _REFERENCE.search(text)
        if unescaped and reference:
            raise CallSyntaxError(
                f"{label} is only partly escaped: it contains both {reference[0]} and an unescaped {unescaped[0]}"
            )
        if unescaped and closing.search(self._raw, self._at):
            raise CallSyntaxError(f"the end of {label} is ambiguous: there are several </{tag}>, and no CDATA")
        if unescaped:
            self.warnings.append(
                f"{label}: {unescaped[0]} outside of CDATA was taken verbatim; write the value as <![CDATA[value]]>."
            )
        elif text.strip():
            self._without_cdata.append(label)
        return text if reference else cdata(text)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._raw, self._at)
        if found:
            self._at = found.end()
        return found


def _escaped(text: str) -> str:
    """Returns the text with each character that XML forbids or changes escaped by two private-use characters."""
    return _INVALID.sub(lambda invalid: _ESCAPE + chr(_PRIVATE_USE + ord(invalid[0]) % _PRIVATE_USE), text)


def _unescaped(text: str) -> str:
    """Returns the original of a text from ``_escaped``."""
    return _ESCAPED.sub(_original, text)


def _original(escaped: re.Match[str]) -> str:
    return _ESCAPE if escaped[1] == _ESCAPE else chr(ord(escaped[1]) - _PRIVATE_USE)


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
    closing = _value_end(text, at, tag)
    return ("", closing.end()) if closing else (f"]]></{tag}>", len(text))


def _value_end(text: str, at: int, tag: str) -> re.Match[str] | None:
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
