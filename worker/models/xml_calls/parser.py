"""From a model's words to its calls."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any
from xml.etree import ElementTree

from worker.models.base import ToolSpec
from worker.models.xml_calls.finding import Attempt, find_attempts
from worker.models.xml_calls.instruction import FORM, example
from worker.models.xml_calls.mending import Declared, mend
from worker.models.xml_calls.values import convert, declared_types
from worker.models.xml_calls.written import (
    SECTION,
    Unreadable,
    Written,
    guard,
    parameter_name,
    unguard,
    without_section,
)

_BLANKS = " \t\r\n"
_SECTION = re.compile(r"(<!\[CDATA\[.*?\]\]>)", re.DOTALL)
_NAME = re.compile(r"\s*+<name>\s*+(?:<!\[CDATA\[)?([\w.:-]{1,100})(?:\]\]>)?\s*+</name>")
_NAMELESS = "tool_call"


class _NotStrictError(Exception):
    """The call is not quite the form."""


def read_call(raw: str, declared: Declared) -> Written:
    """What a call says, from its ``<tool_call>`` to its ``</tool_call>``. Raises ``Unreadable``."""
    try:
        written = _strict(raw)
    except (ElementTree.ParseError, _NotStrictError):
        written = mend(raw, declared)
    if not written.name:
        raise Unreadable("its <name> is empty")
    twice = [name for name, count in Counter(name for name, _ in written.values).items() if count > 1]
    if twice:
        raise Unreadable(f"{', '.join(twice)} is given more than once")
    return written


def _strict(raw: str) -> Written:
    """By ElementTree. Raises its ParseError, ``_NotStrictError``, and ``Unreadable`` for what is certainly wrong."""
    parts = _SECTION.split(raw)
    root = ElementTree.fromstring(_tidy(parts))  # noqa: S314 - it begins with its root, so it can have no DTD
    if any("<!" in outside or "<?" in outside for outside in parts[::2]):
        raise _NotStrictError
    if _is_mixed(parts):
        raise Unreadable("a value has text both inside and outside of its CDATA section")
    if [child.tag for child in root] not in (["name"], ["name", "params"]) or root.attrib or len(root[0]):
        raise _NotStrictError
    params = root[1] if len(root) > 1 else ElementTree.Element("params")
    around = (root.text, params.text, *(child.tail for part in (root, params) for child in part))
    if any(text and unguard(text).strip() for text in around):
        raise Unreadable("there are words between its tags")
    values = [_param(element) for element in params]
    bare = [name for name, text in values if text.strip() and not text.startswith(SECTION)]
    return Written(
        name=unguard(root[0].text or "").strip(),
        values=tuple((name, unguard(text)) for name, text in values),
        warnings=(without_section(bare),) if bare else (),
    )


def _param(element: ElementTree.Element) -> tuple[str, str]:
    if len(element):
        raise _NotStrictError
    attributes = {name: unguard(value) for name, value in element.attrib.items()}
    return parameter_name(element.tag, attributes), element.text or ""


def _is_mixed(parts: list[str]) -> bool:
    """Whether a CDATA section has other text beside it, blanks around it excepted."""
    for at in range(1, len(parts), 2):
        before, after = parts[at - 1], parts[at + 1]
        if before and not before.rstrip(_BLANKS).endswith(">"):
            return True
        if after and not after.lstrip(_BLANKS).startswith("<"):
            return True
    return False


def _tidy(parts: list[str]) -> str:
    """The call without the blanks around its sections: they are layout, only what is inside is the value."""
    outside = [guard(part.strip(_BLANKS)) for part in parts[::2]]
    inside = [guard(part).replace("<![CDATA[", f"<![CDATA[{SECTION}", 1) for part in parts[1::2]]
    return "".join(chain.from_iterable(zip_longest(outside, inside, fillvalue="")))


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call in a text. ``raw_text`` is what the model wrote, ``warnings`` what was put right to read it.

    ``problem`` says why it cannot be carried out, and shows the right form; ``params`` are empty then.
    """

    name: str
    params: dict[str, Any]
    raw_text: str = ""
    warnings: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """A reply's words without its calls, and the calls, in order."""

    words: str
    calls: list[ToolCall] = field(default_factory=list[ToolCall])


class XMLToolCallParser:
    """Reads calls of these tools: their schemas say what type a value has. Without tools it goes by looks."""

    def __init__(self, tools: Sequence[ToolSpec] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._declared = {tool.name: frozenset(tool.schema.get("properties") or ()) for tool in tools}

    def parse_tool_calls(self, text: str) -> list[ToolCall]:
        """The calls that can be carried out, in order. Never raises."""
        return self.read(text, problems=False).calls

    def read(self, text: str, *, problems: bool = True) -> Said:
        """Words and calls. Calls with a problem count as calls, or, with ``problems`` false, as words."""
        words: list[str] = []
        calls: list[ToolCall] = []
        at = 0
        for attempt in find_attempts(text, self._tools):
            call = self._call(text[attempt.start : attempt.end], attempt)
            if call is None or (call.problem and not problems):
                continue
            words.append(text[at : attempt.start])
            calls.append(call)
            at = attempt.end
        words.append(text[at:])
        return Said("".join(words).strip(), calls)

    def _call(self, raw: str, attempt: Attempt) -> ToolCall | None:
        """The call, or None where it is an example in a code fence and no proper call of a known tool."""
        if attempt.missing:
            cut = (
                f"{attempt.missing} is missing, as if the reply was cut. Nothing that follows its beginning was, either"
            )
            return self._broken(raw, f"it is not complete: {cut}")
        if attempt.bare:
            return self._bare(raw, attempt.bare)
        try:
            written = read_call(raw, self._declared)
        except Unreadable as error:
            return None if attempt.fenced else self._broken(raw, str(error))
        if attempt.fenced and (written.mended or (self._tools and written.name not in self._tools)):
            return None
        fenced = ("It stood in a code fence; write calls outside of fences.",) if attempt.fenced else ()
        return self._typed(written, raw, fenced)

    def _typed(self, written: Written, raw: str, warnings: tuple[str, ...]) -> ToolCall:
        tool = self._tools.get(written.name)
        schema = tool.schema if tool else {}
        params = {name: convert(text, declared_types(schema, name)) for name, text in written.values}
        return ToolCall(written.name, params, raw, (*warnings, *written.warnings))

    def _bare(self, raw: str, name: str) -> ToolCall | None:
        """An element named like a tool is a call only where it holds parameters of that tool and nothing else, and
        all that are required; everything else is words."""
        try:
            written = read_call(f"<tool_call>{raw}</tool_call>", self._declared)
        except Unreadable:
            return None
        given = {parameter for parameter, _ in written.values}
        required = set(self._tools[name].schema.get("required") or ())
        if written.name != name or not given <= self._declared[name] or not required <= given:
            return None
        return self._typed(written, raw, ("<tool_call> was missing around the call.",))

    def _broken(self, raw: str, why: str) -> ToolCall:
        named = _NAME.match(raw, raw.find(">") + 1)
        name = named[1] if named else _NAMELESS
        tool = self._tools.get(name)
        problem = (
            f"this call was not carried out, because {why}. Write it again, whole, in this form; where it is long, in "
            f"smaller pieces:\n{example(tool) if tool else FORM}"
        )
        return ToolCall(name, {}, raw, problem=problem)


def parse_tool_calls(text: str, tools: Sequence[ToolSpec] = ()) -> list[ToolCall]:
    """The calls in a text that can be carried out, in order. Never raises."""
    return XMLToolCallParser(tools).parse_tool_calls(text)
