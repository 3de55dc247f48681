"""The parsed form of a call, and the lenient parser for calls that are not well-formed.

The lenient parser accepts only what has a single possible reading, and warns the model about each repair.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree

from .scanner import OPENING_TAG, SECTION_END

MAX_PARAMETERS = 100
_ESCAPE = "\U0010fffd"
SECTION_MARK = f"{_ESCAPE}!"
"""Marks the beginning of a CDATA section's text; ``unescape_invalid`` removes it."""
_PRIVATE_USE = 0x100000
_INVALID = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010fffc\U0010fffe-\U0010ffff]")
_ESCAPED = re.compile(f"{_ESCAPE}(.)", re.DOTALL)
_OPEN_CALL = re.compile(OPENING_TAG)
_CLOSE_CALL = re.compile(r"</tool_call\s*+>\Z")
_NAME = re.compile(r"\s*+<name>\s*+(?:<!\[CDATA\[)?([^<>\[\]]++)(?:\]\]>)?\s*+</name>")
_MALFORMED_NAME = re.compile(
    r"""\s*+<name(?:>\s*+(?=[\w.:-]+\s*+<)|\s*+[=:]\s*+["']?)([\w.:-]{1,100}+)["']?\s*+(?:/?>)?\s*+(?:</?name\s*+>)?"""
)
_TAG = re.compile(r"\s*+<([A-Za-z_][\w.-]*+)>(?=\s*+<)")
_NEXT_TAG = re.compile(r"<(?:([A-Za-z_][\w.-]*+)>|/params>)")
_UNCLOSED_SECTION_END = re.compile(r"\]\]>\s*+(?:<([A-Za-z_][\w.-]*+)>|</params>|\Z)")
_OPEN_PARAMS = re.compile(r"\s*+<params>")
_CLOSE_PARAMS = re.compile(r"\s*+</params>")
_OPEN_PARAMETER = re.compile(r"\s*+<([A-Za-z_][\w.-]*+)([^<>]*+)>")
_OPEN_SECTION = re.compile(r"\s*+<!\[CDATA\[")
_REFERENCE = re.compile(r"&(?:lt|gt|amp|quot|apos|#\d++|#x[0-9a-fA-F]++);")
_UNESCAPED = re.compile(rf"<|&(?!{_REFERENCE.pattern[1:]})")
_STRUCTURE = re.compile(r"</?(?:tool_call|params)\b|<!\[CDATA\[")

ToolParameters = Mapping[str, frozenset[str]]
"""The parameter names of each available tool. Repairs rely on these names only."""


class CallSyntaxError(Exception):
    """The call cannot be parsed, or is ambiguous. The message has the place."""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call's name and its values as texts, in order; ``warnings`` describe repairs.

    ``repaired``: it was not well-formed XML of the right structure.
    """

    name: str
    values: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...] = ()
    repaired: bool = False


def escape_invalid(text: str) -> str:
    """Returns the text with each character that XML forbids or changes escaped by two private-use characters."""
    return _INVALID.sub(lambda invalid: _ESCAPE + chr(_PRIVATE_USE + ord(invalid[0]) % _PRIVATE_USE), text)


def unescape_invalid(text: str) -> str:
    """Returns the original of a text from ``escape_invalid``."""
    return _ESCAPED.sub(_original, text)


def _original(escaped: re.Match[str]) -> str:
    if escaped[1] == "!":
        return ""
    return _ESCAPE if escaped[1] == _ESCAPE else chr(ord(escaped[1]) - _PRIVATE_USE)


def parameter_name(tag: str, attributes: Mapping[str, str]) -> str:
    """Returns the name, also from ``<param name="…">``, the form for names that are not valid tags.

    Raises CallSyntaxError for other attributes.
    """
    if tag == "param" and [*attributes] == ["name"]:
        return attributes["name"]
    if attributes:
        raise CallSyntaxError(f"<{tag}> has attributes")
    return tag


def cdata_warning(names: Sequence[str]) -> str:
    """Returns the warning for values that are not in a CDATA section."""
    return f"{', '.join(names)}: not in CDATA, so taken verbatim. Write every value as <![CDATA[value]]>."


def repair_call(raw: str, tools: ToolParameters) -> ParsedCall:
    """Parses a call that is not well-formed, with a warning per repair. Raises CallSyntaxError if it is ambiguous."""
    return _RepairParser(raw, tools).parse()


@dataclass
class _RepairParser:
    raw: str
    tools: ToolParameters
    parameters: frozenset[str] = frozenset()
    """The parameter names of the tool that is called."""
    at: int = 0
    values: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    warnings: list[str] = field(default_factory=list[str])
    without_cdata: list[str] = field(default_factory=list[str])

    def parse(self) -> ParsedCall:
        opening, closing = _OPEN_CALL.match(self.raw), _CLOSE_CALL.search(self.raw)
        if opening is None or closing is None:
            raise CallSyntaxError("it is not complete")
        self.raw, self.at = self.raw[: closing.start()], opening.end()
        name = self._name(opening[0])
        self.parameters = self.tools.get(name, frozenset())
        self._params()
        if self.without_cdata:
            self.warnings.append(cdata_warning(self.without_cdata))
        return ParsedCall(name, tuple(self.values), tuple(self.warnings), repaired=True)

    def _name(self, opening: str) -> str:
        if opening != "<tool_call>":
            raise CallSyntaxError(f"{opening[:100]} has attributes")
        if found := self._match(_NAME):
            return found[1].strip()
        if found := self._match(_MALFORMED_NAME):
            self.warnings.append(f"{found[0].strip()[:100]} was read as <name>{found[1]}</name>.")
            return found[1]
        return self._name_as_tag()

    def _name_as_tag(self) -> str:
        """Parses a tool's name that is the tag around its parameters."""
        found = self._match(_TAG)
        end = self.raw.rstrip()
        if not found or found[1] not in self.tools or not end.endswith(f"</{found[1]}>"):
            raise CallSyntaxError("it does not begin with <name>…</name>")
        self.raw = end.removesuffix(f"</{found[1]}>")
        self.warnings.append(f"<{found[1]}>…</{found[1]}> was read as <name>{found[1]}</name> and its parameters.")
        return found[1]

    def _params(self) -> None:
        opened = self._match(_OPEN_PARAMS) is not None
        while found := self._match(_OPEN_PARAMETER):
            if len(self.values) == MAX_PARAMETERS:
                raise CallSyntaxError(f"it has more than {MAX_PARAMETERS} parameters")
            self.values.append(self._parameter(found[1], found[2]))
        closed = self._match(_CLOSE_PARAMS) is not None
        if rest := self.raw[self.at :].strip():
            raise CallSyntaxError(f"it cannot be parsed from here on: {rest[:200]}")
        if not opened and (self.values or closed):
            self.warnings.append("<params> was missing around the parameters.")
        elif opened and not closed:
            self.warnings.append("</params> was missing after the parameters.")

    def _parameter(self, tag: str, attributes: str) -> tuple[str, str]:
        empty = attributes.endswith("/")
        try:
            markup = escape_invalid(f"<{tag}{attributes.removesuffix('/')}/>")
            element = ElementTree.fromstring(markup)  # noqa: S314 - one tag
        except ElementTree.ParseError as error:
            raise CallSyntaxError(f"<{tag}{attributes[:100]}> is not a valid tag: {error}") from None
        name = parameter_name(tag, {key: unescape_invalid(value) for key, value in element.attrib.items()})
        if empty:
            return name, ""
        return name, self._section(tag, name) if self._match(_OPEN_SECTION) else self._text(tag, name)

    def _section(self, tag: str, name: str) -> str:
        """Parses a value in CDATA. It ends at the ``]]>`` before its closing tag, so it may contain others."""
        end = next((end for end in SECTION_END.finditer(self.raw, self.at) if end[1] == tag), None)
        if end is None:
            return self._unclosed_section(tag)
        sections = self.raw[self.at : end.start()].split("]]><![CDATA[")
        self.at = end.end()
        for section in sections:
            _, stray, rest = section.partition("]]>")
            if stray and _STRUCTURE.search(rest):
                raise CallSyntaxError(
                    f"the end of {name} is ambiguous: the value contains ]]>; write that as ]]]]><![CDATA[>"
                )
            if stray:
                self.warnings.append(f"{name}: ]]> was read as part of the value; write that as ]]]]><![CDATA[>.")
        return "".join(sections)

    def _text(self, tag: str, name: str) -> str:
        closing = f"</{tag}>"
        end = self.raw.find(closing, self.at)
        if end < 0:
            return self._unclosed_text(tag, name)
        if self.raw.find(closing, end + 1) >= 0:
            raise CallSyntaxError(f"the end of {name} is ambiguous: there are several {closing}, and no CDATA")
        text = self.raw[self.at : end]
        self.at = end + len(closing)
        if "<![CDATA[" in text or "]]>" in text:
            raise CallSyntaxError(f"only part of {name} is in CDATA")
        return self._unescape(name, text)

    def _unclosed_section(self, tag: str) -> str:
        """Parses a value without a closing tag: another parameter of the tool or the end of the call must follow."""
        ends = [
            end
            for end in _UNCLOSED_SECTION_END.finditer(self.raw, self.at)
            if end[1] is None or (end[1] in self.parameters and end[1] != tag)
        ]
        first = self.raw.find("]]>", self.at)
        if not ends or ends[0].start() != first:
            raise CallSyntaxError(f"<{tag}> is not closed by ]]></{tag}>")
        text = self.raw[self.at : first]
        self.at = first + 3
        self.warnings.append(f"</{tag}> was missing.")
        return text

    def _unclosed_text(self, tag: str, name: str) -> str:
        """Parses a text without a closing tag: it ends before the next parameter if no other end is possible."""
        tags = [found for found in _NEXT_TAG.finditer(self.raw, self.at) if not found[1] or found[1] in self.parameters]
        names = [found[1] for found in tags]
        end = tags[0].start() if tags else len(self.raw)
        text = self.raw[self.at : end]
        if tag not in self.parameters or len(set(names)) < len(names) or tag in names or "<" in text:
            raise CallSyntaxError(f"<{tag}> is not closed by </{tag}>")
        self.at = end
        self.warnings.append(f"</{tag}> was missing.")
        return self._unescape(name, text.strip())

    def _unescape(self, name: str, text: str) -> str:
        """Returns the value of a text outside of CDATA: the text itself, or with its character references replaced."""
        unescaped, reference = _UNESCAPED.search(text), _REFERENCE.search(text)
        if unescaped and reference:
            raise CallSyntaxError(
                f"{name} is only partly escaped: it contains both {reference[0]} and an unescaped {unescaped[0]}"
            )
        if unescaped:
            self.warnings.append(
                f"{name}: {unescaped[0]} outside of CDATA was taken verbatim; write the value as <![CDATA[value]]>."
            )
            return text
        if text.strip():
            self.without_cdata.append(name)
        try:
            element = ElementTree.fromstring(f"<text>{escape_invalid(text)}</text>")  # noqa: S314 - no tags
        except ElementTree.ParseError as error:
            raise CallSyntaxError(f"{name} is not valid XML: {error}") from None
        return unescape_invalid(element.text or "")

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.raw, self.at)
        if found:
            self.at = found.end()
        return found
