"""The options of a program, as the table of programs names them, and the arguments of a command read by them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...sandbox.environment import MOUNT
from .plain_line import Word

Argv = Sequence[Word]
"""A command with its arguments."""
_ELSEWHERE = re.compile(
    rf"(?!/dev/(?:null|std(?:in|out|err))\Z)/(?!{MOUNT[1:]}(?:/|\Z)).*|(?:.*/)?\.\.(?:/.*)?", re.DOTALL
)


def options(words: Iterable[str]) -> Mapping[str, str]:
    """Returns what each option takes, from words such as ``-abc``, ``-n~`` and ``--color?``.

    ``=`` takes a path, ``~`` another text, ``?`` a text that stands in the same word or is left out; ``-#`` stands for
    any number.
    """
    found: dict[str, str] = {}
    for word in words:
        kind = word[-1] if word[-1] in "=~?" else ""
        name = word.removesuffix(kind)
        for each in [name] if name.startswith("--") else [f"-{letter}" for letter in name[1:]]:
            found[each] = kind
    return found


@dataclass(slots=True)
class Arguments:
    """The arguments of a command whose options are all known."""

    seen: list[str] = field(default_factory=list[str])
    """The names of its options."""
    operands: list[Word] = field(default_factory=list[Word])
    paths: list[str] = field(default_factory=list[str])
    """The values of options that are paths."""


@dataclass(frozen=True, slots=True)
class Program:
    """How a program, or one of its subcommands, is judged."""

    options: Mapping[str, str]
    changing: Mapping[str, str] = field(default_factory=dict[str, str])
    """Options with which it does not only read, although what they do is known."""
    reads: bool = True
    """Whether it only reads with its other options."""
    exact: bool = False
    """Whether an answer is remembered for the same words only."""
    operands: str | None = None
    """The pattern that all operands, joined by NUL, must match."""
    texts: int = 0
    """How many of the first operands are not paths."""

    def read(self, argv: Argv) -> Arguments | None:
        """Returns the arguments; None where an option is not known, or one may be hidden."""
        found, at = Arguments(), 1
        while at < len(argv):
            word = argv[at]
            if word.text == "--":
                rest = argv[at + 1 :]
                hidden = at > 1 and argv[at - 1].text.startswith("-")  # a value that looks like the end of options
                if hidden and any(each.text.startswith("-") or each.may_be_option for each in rest):
                    return None
                found.operands += rest
                break
            if not word.text.startswith("-") or word.text == "-":
                found.operands.append(word)
                at += 1
                continue
            after = self.option(argv, at, found)
            if after is None or (found.operands and self.reads and self.operands is not None):
                return None  # to some programs an option behind an operand is another operand
            at = after
        return found if self._fits(found.operands) else None

    def option(self, argv: Argv, at: int, found: Arguments) -> int | None:
        """Adds the options of a word; returns where the next argument stands, or None for one that is not known."""
        word = argv[at]
        known = {**self.options, **self.changing}
        name, equals, value = word.text.partition("=")
        if name.startswith("--"):
            names, rest = [name], value if equals else None
        else:
            names, rest = _letters(word.text, known)
        kind = known.get(names[-1]) if names else None
        if word.globs or kind is None or any(known.get(each) != "" for each in names[:-1]):
            return None
        found.seen += names
        at += 1
        if kind in ("=", "~") and rest is None:
            if at == len(argv) or argv[at].globs or argv[at].text.startswith("-"):
                return None
            rest, at = argv[at].text, at + 1
        elif kind == "" and rest is not None:
            return None
        if kind == "=" and rest is not None:
            found.paths.append(rest)
        return at

    def _fits(self, operands: Argv) -> bool:
        if self.operands is None:
            return True
        # A pattern of file names may become several words.
        is_one = not any(word.globs for word in operands)
        text = "\0".join(word.text for word in operands)
        return (is_one or not self.reads) and re.fullmatch(self.operands, text, re.DOTALL) is not None


def _letters(text: str, known: Mapping[str, str]) -> tuple[list[str], str | None]:
    """Returns the options of a word such as ``-la`` or ``-n5``, and the value that it holds, or None."""
    names: list[str] = []
    for at, letter in enumerate(text[1:], 1):
        if letter.isdigit() and "-#" in known and not names:
            return (["-#"], None) if text[at:].isdigit() else (["-#", "?"], None)
        names.append(f"-{letter}")
        if known.get(names[-1]):
            return names, text[at + 1 :] or None
    return names, None


def elsewhere(paths: Iterable[str]) -> str | None:
    """Returns the first of the paths that may lie outside of the workspace, or None."""
    return next(filter(_ELSEWHERE.fullmatch, paths), None)
