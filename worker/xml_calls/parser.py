"""From a model's words to its calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from worker.models.base import ToolSpec
from worker.xml_calls.finding import Attempt, find_attempts
from worker.xml_calls.instruction import example
from worker.xml_calls.reading import read_call
from worker.xml_calls.spelling import FORM
from worker.xml_calls.values import convert, declared_types
from worker.xml_calls.written import Unreadable, Written

_NAME = re.compile(r"\s*+<name>\s*+(?:<!\[CDATA\[)?([\w.:-]{1,100})(?:\]\]>)?\s*+</name>")
_NAMELESS = "tool_call"


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
