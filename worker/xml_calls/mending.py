"""A call that is not quite the form, read by patterns where only one reading is possible (S003-030, C14)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.etree import ElementTree

from worker.xml_calls.finding import OPENING, SECTION_END
from worker.xml_calls.guarding import guard, unguard
from worker.xml_calls.written import Unreadable, Written, parameter_name, without_section

MAX_PARAMS = 100
_OPEN_CALL = re.compile(OPENING)
_CLOSE_CALL = re.compile(r"</tool_call\s*+>\Z")
_NAME = re.compile(r"\s*+<name>\s*+(?:<!\[CDATA\[)?([^<>\[\]]++)(?:\]\]>)?\s*+</name>")
_PARAMS = re.compile(r"\s*+<params>")
_END_PARAMS = re.compile(r"\s*+</params>")
_PARAM = re.compile(r"\s*+<([A-Za-z_][\w.-]*+)([^<>]*+)>")
_SECTION_BEGIN = re.compile(r"\s*+<!\[CDATA\[")
_REFERENCE = re.compile(r"&(?:lt|gt|amp|quot|apos|#\d++|#x[0-9a-fA-F]++);")
_BARE = re.compile(rf"<|&(?!{_REFERENCE.pattern[1:]})")
_STRUCTURE = re.compile(r"</?(?:tool_call|params)\b|<!\[CDATA\[")


def mend(raw: str) -> Written:
    """What the call says, with a warning for each thing put right. Raises ``Unreadable`` where that is not certain."""
    return _Mender(raw).read()


@dataclass
class _Mender:
    raw: str
    at: int = 0
    values: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    warnings: list[str] = field(default_factory=list[str])
    bare: list[str] = field(default_factory=list[str])
    """Parameters whose values stood outside of CDATA."""

    def read(self) -> Written:
        opening, closing = _OPEN_CALL.match(self.raw), _CLOSE_CALL.search(self.raw)
        if opening is None or closing is None:
            raise Unreadable("it is not complete")
        if opening[0] != "<tool_call>":
            raise Unreadable(f"{opening[0][:100]} has attributes")
        self.raw, self.at = self.raw[: closing.start()], opening.end()
        name = self._take(_NAME)
        if name is None:
            raise Unreadable("it does not begin with <name>…</name>")
        self._params()
        if self.bare:
            self.warnings.append(without_section(self.bare))
        return Written(name[1].strip(), tuple(self.values), tuple(self.warnings), mended=True)

    def _params(self) -> None:
        wrapped = self._take(_PARAMS) is not None
        while opened := self._take(_PARAM):
            if len(self.values) == MAX_PARAMS:
                raise Unreadable(f"it has more than {MAX_PARAMS} parameters")
            self.values.append(self._param(opened[1], opened[2]))
        closed = self._take(_END_PARAMS) is not None
        if rest := self.raw[self.at :].strip():
            raise Unreadable(f"it cannot be read from here on: {rest[:200]}")
        if not wrapped and (self.values or closed):
            self.warnings.append("<params> was missing around the parameters.")
        elif wrapped and not closed:
            self.warnings.append("</params> was missing after the parameters.")

    def _param(self, tag: str, attributes: str) -> tuple[str, str]:
        empty = attributes.endswith("/")
        try:
            element = ElementTree.fromstring(guard(f"<{tag}{attributes.removesuffix('/')}/>"))  # noqa: S314 - one tag
        except ElementTree.ParseError as error:
            raise Unreadable(f"<{tag}{attributes[:100]}> is no tag: {error}") from None
        name = parameter_name(tag, {key: unguard(value) for key, value in element.attrib.items()})
        if empty:
            return name, ""
        return name, self._section(tag, name) if self._take(_SECTION_BEGIN) else self._text(tag, name)

    def _section(self, tag: str, name: str) -> str:
        """The value runs to ``]]>`` before its closing tag, so one in its middle is a part of it."""
        end = next((end for end in SECTION_END.finditer(self.raw, self.at) if end[1] == tag), None)
        if end is None:
            raise Unreadable(f"<{tag}> is not closed by ]]></{tag}>")
        sections = self.raw[self.at : end.start()].split("]]><![CDATA[")
        self.at = end.end()
        for section in sections:
            _, stray, rest = section.partition("]]>")
            if stray and _STRUCTURE.search(rest):
                raise Unreadable(f"where {name} ends is not certain, because it holds ]]>; write that ]]]]><![CDATA[>")
            if stray:
                self.warnings.append(f"{name}: ]]> was taken as a part of the value; write that as ]]]]><![CDATA[>.")
        return "".join(sections)

    def _text(self, tag: str, name: str) -> str:
        closing = f"</{tag}>"
        end = self.raw.find(closing, self.at)
        if end < 0:
            raise Unreadable(f"<{tag}> is not closed by {closing}")
        if self.raw.find(closing, end + 1) >= 0:
            raise Unreadable(f"where {name} ends is not certain: there are several {closing}, and no CDATA")
        text = self.raw[self.at : end]
        self.at = end + len(closing)
        if "<![CDATA[" in text or "]]>" in text:
            raise Unreadable(f"{name} is in CDATA only in part")
        return self._meant(name, text)

    def _meant(self, name: str, text: str) -> str:
        """What a text outside of CDATA stands for: itself, or what its references say, if it is one of both."""
        bare, referring = _BARE.search(text), _REFERENCE.search(text)
        if bare and referring:
            raise Unreadable(f"{name} is escaped in part: both {referring[0]} and a bare {bare[0]} are in it")
        if bare:
            self.warnings.append(
                f"{name}: {bare[0]} outside of CDATA was taken as it stands; write the value as <![CDATA[value]]>."
            )
            return text
        if text.strip():
            self.bare.append(name)
        try:
            return unguard(ElementTree.fromstring(guard(f"<text>{text}</text>")).text or "")  # noqa: S314 - no tags
        except ElementTree.ParseError as error:
            raise Unreadable(f"{name} is no XML: {error}") from None

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.raw, self.at)
        if found:
            self.at = found.end()
        return found
