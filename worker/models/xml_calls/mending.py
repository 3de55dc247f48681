"""A call that is not quite the form, read by patterns where only one reading is possible."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree

from worker.models.xml_calls.finding import OPENING, SECTION_END
from worker.models.xml_calls.written import Unreadable, Written, guard, parameter_name, unguard, without_section

MAX_PARAMS = 100
_OPEN_CALL = re.compile(OPENING)
_CLOSE_CALL = re.compile(r"</tool_call\s*+>\Z")
_NAME = re.compile(r"\s*+<name>\s*+(?:<!\[CDATA\[)?([^<>\[\]]++)(?:\]\]>)?\s*+</name>")
_ODD_NAME = re.compile(
    r"""\s*+<name(?:>\s*+(?=[\w.:-]+\s*+<)|\s*+[=:]\s*+["']?)([\w.:-]{1,100}+)["']?\s*+(?:/?>)?\s*+(?:</?name\s*+>)?"""
)
_TAG = re.compile(r"\s*+<([A-Za-z_][\w.-]*+)>(?=\s*+<)")
_NEXT = re.compile(r"<(?:([A-Za-z_][\w.-]*+)>|/params>)")
_LOOSE_END = re.compile(r"\]\]>\s*+(?:<([A-Za-z_][\w.-]*+)>|</params>|\Z)")
_PARAMS = re.compile(r"\s*+<params>")
_END_PARAMS = re.compile(r"\s*+</params>")
_PARAM = re.compile(r"\s*+<([A-Za-z_][\w.-]*+)([^<>]*+)>")
_SECTION_BEGIN = re.compile(r"\s*+<!\[CDATA\[")
_REFERENCE = re.compile(r"&(?:lt|gt|amp|quot|apos|#\d++|#x[0-9a-fA-F]++);")
_BARE = re.compile(rf"<|&(?!{_REFERENCE.pattern[1:]})")
_STRUCTURE = re.compile(r"</?(?:tool_call|params)\b|<!\[CDATA\[")

Declared = Mapping[str, frozenset[str]]
"""The tools there are, each with its parameters. Only what is named here may be guessed at."""


def mend(raw: str, declared: Declared) -> Written:
    """What the call says, with a warning for each thing put right. Raises ``Unreadable`` where that is not certain."""
    return _Mender(raw, declared).read()


@dataclass
class _Mender:
    raw: str
    declared: Declared
    known: frozenset[str] = frozenset()
    """The parameters of the tool that is called."""
    at: int = 0
    values: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    warnings: list[str] = field(default_factory=list[str])
    bare: list[str] = field(default_factory=list[str])
    """Parameters whose values stood outside of CDATA."""

    def read(self) -> Written:
        opening, closing = _OPEN_CALL.match(self.raw), _CLOSE_CALL.search(self.raw)
        if opening is None or closing is None:
            raise Unreadable("it is not complete")
        self.raw, self.at = self.raw[: closing.start()], opening.end()
        name = self._name(opening[0])
        self.known = self.declared.get(name, frozenset())
        self._params()
        if self.bare:
            self.warnings.append(without_section(self.bare))
        return Written(name, tuple(self.values), tuple(self.warnings), mended=True)

    def _name(self, opening: str) -> str:
        if opening != "<tool_call>":
            raise Unreadable(f"{opening[:100]} has attributes")
        if found := self._take(_NAME):
            return found[1].strip()
        if found := self._take(_ODD_NAME):
            self.warnings.append(f"{found[0].strip()[:100]} was taken for <name>{found[1]}</name>.")
            return found[1]
        return self._name_as_tag()

    def _name_as_tag(self) -> str:
        """The name of a tool as the tag around its parameters."""
        found = self._take(_TAG)
        end = self.raw.rstrip()
        if not found or found[1] not in self.declared or not end.endswith(f"</{found[1]}>"):
            raise Unreadable("it does not begin with <name>…</name>")
        self.raw = end.removesuffix(f"</{found[1]}>")
        self.warnings.append(f"<{found[1]}>…</{found[1]}> was taken for <name>{found[1]}</name> and its parameters.")
        return found[1]

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
            return self._unclosed_section(tag)
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
            return self._unclosed_text(tag, name)
        if self.raw.find(closing, end + 1) >= 0:
            raise Unreadable(f"where {name} ends is not certain: there are several {closing}, and no CDATA")
        text = self.raw[self.at : end]
        self.at = end + len(closing)
        if "<![CDATA[" in text or "]]>" in text:
            raise Unreadable(f"{name} is in CDATA only in part")
        return self._meant(name, text)

    def _unclosed_section(self, tag: str) -> str:
        """The value ends where its section does, if one parameter of the tool or the end of the call follows."""
        ends = [
            end
            for end in _LOOSE_END.finditer(self.raw, self.at)
            if end[1] is None or (end[1] in self.known and end[1] != tag)
        ]
        stray = self.raw.find("]]>", self.at)
        if not ends or ends[0].start() != stray:
            raise Unreadable(f"<{tag}> is not closed by ]]></{tag}>")
        text = self.raw[self.at : stray]
        self.at = stray + 3
        self.warnings.append(f"</{tag}> was missing.")
        return text

    def _unclosed_text(self, tag: str, name: str) -> str:
        """The value ends before the next parameter of the tool, or the end of them, if only one can be meant."""
        follows = [found for found in _NEXT.finditer(self.raw, self.at) if found[1] is None or found[1] in self.known]
        names = [found[1] for found in follows]
        end = follows[0].start() if follows else len(self.raw)
        text = self.raw[self.at : end]
        if tag not in self.known or len(set(names)) < len(names) or tag in names or "<" in text:
            raise Unreadable(f"<{tag}> is not closed by </{tag}>")
        self.at = end
        self.warnings.append(f"</{tag}> was missing.")
        return self._meant(name, text.strip())

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
