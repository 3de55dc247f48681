"""Plain lines: commands of literal words, joined by ``;`` ``&&`` ``||`` ``|`` and line ends. Only these are read.

This imitates bash only where bash does nothing with a text but to cut it into words. All else is not plain.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_CHARS = 16_000
"""Longer lines are not read."""
_BLANKS = re.compile(r"[ \t]+(?:\\\n[ \t]*)*")
_REDIRECTION = re.compile(r"(?:(?:[012]?>>?|&>>?|0?<)[ \t]*/dev/null|2>&1|1?>&2)(?=[ \t\n;|&]|\Z)")
_OPERATOR = re.compile(r"&&|\|\||\|(?!&)|;(?![;&])|\n")
_PIECE = re.compile(
    r"(?P<bare>(?:[A-Za-z0-9_./,:@%+=^!\]-]|[^\x00-\x7f])+)"
    r"|'(?P<single>[^']*)'"
    r"|\"(?P<double>(?:[^\"\\$`]|\\[^\n]|\$(?=\"))*)\""
    r"|\\(?P<escaped>[^\n])"
    r"|(?P<reference>(?<=@)\{[A-Za-z0-9_-]+\})"
    r"|(?P<tilde>(?<![\s;&|=:])~)"
    r"|(?P<hash>(?<![\s;&|])\#)"
    r"|(?P<glob>[*?]|\[(?![ \t\n]))"
)
_WHOLE = re.compile(r"(?:\{\}|\[)(?=[ \t\n;|&]|\Z)")
"""Words that mean something else as a part of a word."""
_ESCAPES = re.compile(r"\\([\\\"$`])")
_SETS_VARIABLE = re.compile(r"[A-Za-z_]\w*(?:\[.*\])?\+?=", re.DOTALL)
_KEYWORDS = re.compile(r"if|then|else|elif|fi|do|done|case|esac|while|until|for|in|select|function|time|coproc|!|\{\}")
_WHY = {
    "$`": "has an expansion",
    "()": "has parentheses",
    "<>": "has a redirection",
    "{}": "has braces",
    "#": "has a # after a blank",
    "[": "has [[ or an open bracket",
    "~": "has a tilde",
    "\\": "has an escaped line end",
    "'\"": "has an expansion in quotes, or open quotes",
}


class NotPlain(Exception):
    """The line is not plain. The message is the end of a sentence that begins with `it`."""


@dataclass(frozen=True, slots=True)
class Word:
    """A literal word, without its quotes."""

    text: str
    globs: bool = False
    """Whether it is a pattern of file names."""
    may_be_option: bool = False
    """Whether it begins with a pattern, so that a file may be named like an option."""


Argv = Sequence[Word]
"""A command with its arguments."""


@dataclass(frozen=True, slots=True)
class Simple:
    """A command."""

    words: Sequence[Word]
    source: str
    """As it stands in the line."""
    piped: bool
    """Whether it gets the output of the command before it."""


@dataclass(slots=True)
class _Reader:
    """Reads a line from its beginning to its end."""

    line: str
    at: int = 0
    found: list[Simple] = field(default_factory=list[Simple])
    words: list[Word] = field(default_factory=list[Word])
    begin: int = 0
    operator: str = ""
    """The one before the command that is being read."""
    redirected: bool = False

    def read(self) -> list[Simple]:
        while self.at < len(self.line):
            if blanks := _BLANKS.match(self.line, self.at):
                self.at = blanks.end()
            elif self.line[self.at] == "#":
                self.at = len(self.line) if (end := self.line.find("\n", self.at)) < 0 else end
                if self.line[self.at - 1] == "\\":
                    raise NotPlain("has a comment with an escaped line end")
            elif redirection := _REDIRECTION.match(self.line, self.at):
                self.redirected, self.at = True, redirection.end()
            elif operator := _OPERATOR.match(self.line, self.at):
                self._end(operator[0])
                self.at = operator.end()
            else:
                self._word()
        self._end("")
        if self.operator in ("&&", "||", "|"):
            raise NotPlain(f"ends with {self.operator}")
        return self.found

    def _word(self) -> None:
        start, text, globs = self.at, "", list[int]()
        if self.line[start] in ";&|":
            raise NotPlain(f"has the operator {self.line[start : start + 2]}")
        if whole := _WHOLE.match(self.line, self.at):
            text, self.at = whole[0], whole.end()
        while self.at < len(self.line) and self.line[self.at] not in " \t\n;|&":
            piece = _PIECE.match(self.line, self.at)
            if piece is None:
                raise NotPlain(next(why for chars, why in _WHY.items() if self.line[self.at] in chars))
            if piece.lastgroup == "glob":
                globs.append(len(text))
            inside = piece[piece.lastgroup or 0]
            text += _ESCAPES.sub(r"\1", inside) if piece.lastgroup == "double" else inside
            self.at = piece.end()
        if not self.words:
            self._check_program(self.line[start : self.at], globs=bool(globs))
            self.begin = start
        self.words.append(Word(text, bool(globs), bool(globs) and globs[0] == 0))

    def _check_program(self, source: str, *, globs: bool) -> None:
        if _KEYWORDS.fullmatch(source):
            raise NotPlain(f"has the keyword {source}")
        if _SETS_VARIABLE.match(source):
            raise NotPlain("sets a variable")
        if globs:
            raise NotPlain("has a pattern in the place of a program")

    def _end(self, operator: str) -> None:
        """Ends a command before an operator."""
        if self.words:
            options = itertools.takewhile(lambda word: word.text != "--", self.words)
            if pattern := next((word.text for word in options if word.may_be_option), None):
                raise NotPlain(f"has the pattern {pattern}, which may become an option: write ./{pattern}")
            source = self.line[self.begin : self.at].strip()
            self.found.append(Simple(self.words, source, self.operator == "|"))
        elif self.redirected or operator not in ("\n", ""):
            raise NotPlain("has a redirection or an operator without a command")
        if self.words or operator != "\n":
            self.operator = operator or self.operator * (not self.words)
        self.words, self.redirected = [], False


def commands_of(line: str) -> list[Simple]:
    """Returns the commands of a plain line. Raises NotPlain."""
    if len(line) > MAX_CHARS:
        raise NotPlain(f"is longer than {MAX_CHARS} characters")
    return _Reader(line).read()
