"""Parses the tool calls in a model's text: strictly as XML, else with repairs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any
from xml.etree import ElementTree

from ..models.base import ToolSpec
from .coercion import coerce, declared_types
from .instruction import FORM, example_call
from .repair import (
    SECTION_MARK,
    CallSyntaxError,
    ParsedCall,
    ToolParameters,
    cdata_warning,
    escape_invalid,
    parameter_name,
    repair_call,
    unescape_invalid,
)
from .scanner import CallElement, find_call_elements

_BLANKS = " \t\r\n"
_SECTION = re.compile(r"(<!\[CDATA\[.*?\]\]>)", re.DOTALL)
_NAME = re.compile(r"\s*+<name>\s*+(?:<!\[CDATA\[)?([\w.:-]{1,100})(?:\]\]>)?\s*+</name>")
_UNKNOWN_NAME = "tool_call"


class _NotStrictError(Exception):
    """The call does not have exactly the documented form."""


def parse_call(raw: str, tools: ToolParameters) -> ParsedCall:
    """Parses one call, from its ``<tool_call>`` to its ``</tool_call>``. Raises CallSyntaxError."""
    try:
        parsed = _parse_strictly(raw)
    except (ElementTree.ParseError, _NotStrictError):
        parsed = repair_call(raw, tools)
    if not parsed.name:
        raise CallSyntaxError("its <name> is empty")
    duplicates = [name for name, count in Counter(name for name, _ in parsed.values).items() if count > 1]
    if duplicates:
        raise CallSyntaxError(f"{', '.join(duplicates)} occurs more than once")
    return parsed


def _parse_strictly(raw: str) -> ParsedCall:
    """Parses with ElementTree. Raises its ParseError, _NotStrictError, and CallSyntaxError for certain mistakes."""
    parts = _SECTION.split(raw)
    root = ElementTree.fromstring(_strip_layout(parts))  # noqa: S314 - begins with its root, so it cannot have a DTD
    if any("<!" in outside or "<?" in outside for outside in parts[::2]):
        raise _NotStrictError
    if _has_mixed_value(parts):
        raise CallSyntaxError("a value has text both inside and outside of its CDATA section")
    if [child.tag for child in root] not in (["name"], ["name", "params"]) or root.attrib or len(root[0]):
        raise _NotStrictError
    params = root[1] if len(root) > 1 else ElementTree.Element("params")
    around = (root.text, params.text, *(child.tail for part in (root, params) for child in part))
    if any(text and unescape_invalid(text).strip() for text in around):
        raise CallSyntaxError("there is text between its tags")
    values = [_parse_parameter(element) for element in params]
    without_cdata = [name for name, text in values if text.strip() and not text.startswith(SECTION_MARK)]
    return ParsedCall(
        name=unescape_invalid(root[0].text or "").strip(),
        values=tuple((name, unescape_invalid(text)) for name, text in values),
        warnings=(cdata_warning(without_cdata),) if without_cdata else (),
    )


def _parse_parameter(element: ElementTree.Element) -> tuple[str, str]:
    if len(element):
        raise _NotStrictError
    attributes = {name: unescape_invalid(value) for name, value in element.attrib.items()}
    return parameter_name(element.tag, attributes), element.text or ""


def _has_mixed_value(parts: list[str]) -> bool:
    """Returns whether a CDATA section has text other than blanks beside it."""
    for at in range(1, len(parts), 2):
        before, after = parts[at - 1], parts[at + 1]
        if before and not before.rstrip(_BLANKS).endswith(">"):
            return True
        if after and not after.lstrip(_BLANKS).startswith("<"):
            return True
    return False


def _strip_layout(parts: list[str]) -> str:
    """Returns the call without the blanks around its sections: only the content of a section is the value."""
    outside = [escape_invalid(part.strip(_BLANKS)) for part in parts[::2]]
    inside = [escape_invalid(part).replace("<![CDATA[", f"<![CDATA[{SECTION_MARK}", 1) for part in parts[1::2]]
    return "".join(chain.from_iterable(zip_longest(outside, inside, fillvalue="")))


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
        self._parameters = {tool.name: frozenset(tool.schema.get("properties") or ()) for tool in tools}

    def parse_tool_calls(self, text: str) -> list[ToolCall]:
        """Returns the executable calls, in order. Never raises."""
        return self.parse_reply(text, problems=False).calls

    def parse_reply(self, text: str, *, problems: bool = True) -> ParsedReply:
        """Separates text and calls. A call with a problem is a call, or, with ``problems`` false, text."""
        texts: list[str] = []
        calls: list[ToolCall] = []
        at = 0
        for element in find_call_elements(text, self._tools):
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
        if element.tool_tag:
            return self._call_by_tag(raw, element.tool_tag)
        try:
            parsed = parse_call(raw, self._parameters)
        except CallSyntaxError as error:
            return None if element.fenced else self._invalid_call(raw, str(error))
        if element.fenced and (parsed.repaired or (self._tools and parsed.name not in self._tools)):
            return None
        warnings = ("The call was in a code fence; write calls outside of code fences.",) if element.fenced else ()
        return self._typed_call(parsed, raw, warnings)

    def _typed_call(self, parsed: ParsedCall, raw: str, warnings: tuple[str, ...]) -> ToolCall:
        tool = self._tools.get(parsed.name)
        schema = tool.schema if tool else {}
        params = {name: coerce(text, declared_types(schema, name)) for name, text in parsed.values}
        return ToolCall(parsed.name, params, raw, (*warnings, *parsed.warnings))

    def _call_by_tag(self, raw: str, name: str) -> ToolCall | None:
        """Returns the call for an element named like a tool, or None unless it holds only parameters of the tool, and
        all required ones."""
        try:
            parsed = parse_call(f"<tool_call>{raw}</tool_call>", self._parameters)
        except CallSyntaxError:
            return None
        names = {parameter for parameter, _ in parsed.values}
        required = set(self._tools[name].schema.get("required") or ())
        if parsed.name != name or not names <= self._parameters[name] or not required <= names:
            return None
        return self._typed_call(parsed, raw, ("<tool_call> was missing around the call.",))

    def _invalid_call(self, raw: str, reason: str) -> ToolCall:
        found = _NAME.match(raw, raw.find(">") + 1)
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
