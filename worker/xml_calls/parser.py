"""Parses the tool calls in a model's text, and repairs those that deviate from the form in one possible reading.

Calls are located first, in linear time, and those skipped that are only quoted as code. Everything between
``<tool_call>`` and its own ``</tool_call>`` belongs to that call, CDATA sections and calls inside its values included.
A call without an end extends to the end of the text: a later ``<tool_call>`` may be part of a value, so it is not a
call of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from xml.etree import ElementTree

from ..models.base import ToolSpec
from ..schemas.strict_json import loads
from .instruction import FORM, JSON_TYPES, cdata, declared_types, example_call

MAX_PARAMETERS = 100
_UNKNOWN_NAME = "tool_call"
_TAG_NAME = r"[^\W\d][\w.-]*+"
_OPENING_TAG = r"<tool_call(?=[\s>])[^<>]*+>"
_BEGINNING = (
    rf"(?P<indent>^[^\S\n]*+)?(?P<open>{_OPENING_TAG})"
    r"(?(indent)|(?=\s*+(?:<[A-Za-z]|\{|<?\Z)))"  # where it is not first on its line, only before a call's content
)
"""A tag that begins a call rather than being mentioned in a sentence."""
_MARK = r"(?P<mark>`{3,}+|~{3,}+)"
_FENCE_END = rf"(?P<fence>^[ \t]*+{_MARK}[ \t]*+$)"
_OUTSIDE = re.compile(rf"(?P<fence>^[ \t]*+{_MARK}[^`\n]*+$)|(?P<ticks>`++)|{_BEGINNING}", re.MULTILINE)
_TICKS = re.compile(r"`++|\n")
_IN_FENCE = re.compile(rf"{_BEGINNING}|{_FENCE_END}", re.MULTILINE)
_VALUE_IN_CDATA = r"\s*+<!\[CDATA\[(?s:(?P<section>.*?))\]\]>\s*+</(?P=tag)\s*+>"
"""It ends at the ``]]>`` before its closing tag, so it may contain others."""
_INSIDE = re.compile(
    rf"(?P<open>{_OPENING_TAG})|(?P<close></tool_call\s*+>)|{_FENCE_END}"
    rf"|<(?P<tag>{_TAG_NAME})[^<>]*+>{_VALUE_IN_CDATA}|<!\[CDATA\[(?s:.*?)\]\]>"
    rf"|(?P<unclosed>(?:<(?P<lacking>{_TAG_NAME})[^<>]*+>\s*+)?<!\[CDATA\[)",
    re.MULTILINE,
)
_BEGIN = re.compile(
    r"<tool_call\s*+>\s*+<name\s*+>\s*+(?:<!\[CDATA\[)?\s*+([^<>\[\]&\s]{1,128}+)\s*+(?:\]\]>)?\s*+</name\s*+>"
)
_OPEN_PARAMS = re.compile(r"\s*+<params\s*+(/?)>")
_CLOSE_PARAMS = re.compile(r"\s*+</params\s*+>")
_PARAMETER = re.compile(
    rf"\s*+<(?P<tag>{_TAG_NAME})(?P<attributes>[^<>]*+)>"
    r"(?P<rest>(?<=/>)"  # <tag/>: nothing follows
    rf"|{_VALUE_IN_CDATA}"
    r"|(?s:(?P<text>.*?))</(?P=tag)\s*+>)?"  # without this group the tag is not closed
)
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
        try:
            parsed = _CallReader(raw)
        except CallSyntaxError as error:
            return None if element.fenced else self._invalid_call(raw, str(error))
        if element.fenced:
            if parsed.warnings or (self._tools and parsed.name not in self._tools):
                return None
            parsed.warnings.append("The call was in a code fence; write calls outside of code fences.")
        tool = self._tools.get(parsed.name)
        schema = tool.schema if tool else {}
        params = {name: coerce(text, declared_types(schema, name)) for name, text in parsed.values.items()}
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
    ``]]>`` in a value, and a missing ``<params>``. Raises CallSyntaxError for anything else.
    """

    def __init__(self, raw: str) -> None:
        self.values: dict[str, str] = {}
        self.warnings: list[str] = []
        self._without_cdata: list[str] = []
        begin = _BEGIN.match(raw)
        if begin is None:
            raise CallSyntaxError("it does not begin with <tool_call> and <name>TOOL</name>")
        self.name = begin[1]
        self._read_params(raw[begin.end() : raw.rindex("</tool_call")])
        if self._without_cdata:
            names = ", ".join(self._without_cdata)
            self.warnings.append(f"{names}: not in CDATA, so taken verbatim. Write every value as <![CDATA[value]]>.")

    def _read_params(self, body: str) -> None:
        opened = _OPEN_PARAMS.match(body)
        at, closed = (opened.end(), opened[1] == "/") if opened else (0, False)
        while not closed and (found := _PARAMETER.match(body, at)):
            if len(self.values) == MAX_PARAMETERS:
                raise CallSyntaxError(f"it has more than {MAX_PARAMETERS} parameters")
            at = found.end()
            name, value = self._parameter(found)
            if name in self.values:
                raise CallSyntaxError(f"{name} occurs more than once")
            self.values[name] = value
        if not closed and (end := _CLOSE_PARAMS.match(body, at)):
            closed, at = True, end.end()
        if rest := body[at:].strip():
            raise CallSyntaxError(f"it cannot be parsed from here on: {rest[:200]}")
        if not opened and (self.values or closed):
            self.warnings.append("<params> was missing around the parameters.")
        elif opened and not closed:
            self.warnings.append("</params> was missing after the parameters.")

    def _parameter(self, found: re.Match[str]) -> tuple[str, str]:
        tag, attributes = found["tag"], found["attributes"].removesuffix("/")
        label = f"{tag}{attributes[:100]}"
        if found["rest"] is None:
            raise CallSyntaxError(f"<{tag}> is not closed by </{tag}>")
        if found["section"] is not None:
            content = self._section(found["section"], label)
        else:
            content = self._text(found, label) if found["text"] else ""
        try:
            element = ElementTree.fromstring(_escaped(f"<{tag}{attributes}>{content}</{tag}>"))  # noqa: S314 - no DTD
        except ElementTree.ParseError as error:
            raise CallSyntaxError(f"<{label}> is not valid XML: {error}") from None
        if not element.attrib:
            return tag, _unescaped(element.text or "")
        if tag != "param" or [*element.attrib] != ["name"]:
            raise CallSyntaxError(f"<{tag}> has attributes")
        # the form for names that are not valid tags
        return _unescaped(element.attrib["name"]), _unescaped(element.text or "")

    def _section(self, value: str, label: str) -> str:
        sections = value.split("]]><![CDATA[")
        after = [section.partition("]]>")[2] for section in sections if "]]>" in section]
        if any(map(_STRUCTURE.search, after)):
            raise CallSyntaxError(
                f"the end of {label} is ambiguous: the value contains ]]>; write that as ]]]]><![CDATA[>"
            )
        if after:
            self.warnings.append(f"{label}: ]]> was read as part of the value; write that as ]]]]><![CDATA[>.")
        return cdata("".join(sections))

    def _text(self, found: re.Match[str], label: str) -> str:
        """Returns a value outside of CDATA: as it is where it has character references, else as CDATA."""
        text = found["text"]
        if "<![CDATA[" in text or "]]>" in text:
            raise CallSyntaxError(f"only part of {label} is in CDATA")
        unescaped, reference = _UNESCAPED.search(text), _REFERENCE.search(text)
        if unescaped and reference:
            raise CallSyntaxError(
                f"{label} is only partly escaped: it contains both {reference[0]} and an unescaped {unescaped[0]}"
            )
        if unescaped and re.compile(rf"</{re.escape(found['tag'])}\s*+>").search(found.string, found.end()):
            raise CallSyntaxError(f"the end of {label} is ambiguous: there are several </{found['tag']}>, and no CDATA")
        if unescaped:
            self.warnings.append(
                f"{label}: {unescaped[0]} outside of CDATA was taken verbatim; write the value as <![CDATA[value]]>."
            )
        elif text.strip():
            self._without_cdata.append(label)
        return text if reference else cdata(text)


def _escaped(text: str) -> str:
    """Returns the text with each character that XML forbids or changes escaped by two private-use characters."""
    return _INVALID.sub(lambda invalid: _ESCAPE + chr(_PRIVATE_USE + ord(invalid[0]) % _PRIVATE_USE), text)


def _unescaped(text: str) -> str:
    """Returns the original of a text from ``_escaped``."""
    return _ESCAPED.sub(lambda pair: _ESCAPE if pair[1] == _ESCAPE else chr(ord(pair[1]) - _PRIVATE_USE), text)


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
    code_ends = _code_ends(text)
    found: list[CallElement] = []
    at = 0
    while token := _OUTSIDE.search(text, at):
        at = token.end()
        if token.lastgroup == "fence":
            fenced, at = _scan_fence(text, at, token["mark"])
            found += fenced
        elif token.lastgroup == "ticks":
            at = code_ends.get(at, at)
        elif token.lastgroup == "open":
            at, missing = _call_end(text, at)
            found.append(CallElement(token.start("open"), at, missing))
    return found


def _code_ends(text: str) -> dict[int, int]:
    """Returns where inline code ends, by the end of its first backticks: after as many more on the same line."""
    ends: dict[int, int] = {}
    last: dict[str, int] = {}
    for token in _TICKS.finditer(text):
        if token[0] == "\n":
            last.clear()
            continue
        if token[0] in last:
            ends[last[token[0]]] = token.end()
        last[token[0]] = token.end()
    return ends


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
            case "unclosed":
                return len(text), f"]]></{token['lacking']}>" if token["lacking"] else "]]>"
            case "fence" if fence and token["mark"].startswith(fence):
                return at, fence
            case _:
                pass
    return len(text), "</tool_call>"


def _scan_fence(text: str, at: int, fence: str) -> tuple[list[CallElement], int]:
    """Returns the calls that fill a code fence and its end; no calls if it has other content, as examples do."""
    calls: list[CallElement] = []
    calls_only = True
    while token := _IN_FENCE.search(text, at):
        calls_only = calls_only and not text[at : token.start()].strip()
        at = token.end()
        if token.lastgroup == "open":
            at, missing = _call_end(text, at, fence)
            if missing == fence:
                return [], at
            calls.append(CallElement(token.start("open"), at, missing, fenced=True))
        elif token["mark"].startswith(fence):
            return (calls if calls_only else []), at
        else:
            calls_only = False
    if calls_only and not text[at:].strip():
        return calls, len(text)
    return [replace(call, end=len(text), missing=fence) for call in calls[:1]], len(text)
