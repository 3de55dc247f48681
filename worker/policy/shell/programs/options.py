"""The options before an argument: where the command begins that a launcher starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deputize.worker.policy.shell.judgement import Argv
from deputize.worker.policy.shell.words import Word


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a program, which stand before its first operand."""

    flags: str = ""
    """Letters of options without a value."""
    valued: str = ""
    """Letters of options with a value."""
    long: tuple[str, ...] = ()
    """Long options without a value, without ``--``."""
    long_valued: tuple[str, ...] = ()

    def skip(self, argv: Argv, at: int = 1) -> tuple[int, list[tuple[str, Word | None]]] | None:
        """Returns where the first operand stands, and the options with their values; None if one is not known."""
        found: list[tuple[str, Word | None]] = []
        while at < len(argv):
            word = argv[at]
            if word.splits or (not word.known and word.text.startswith("-")):
                return None
            if word.text == "--":
                return at + 1, found
            if len(word.text) < 2 or not word.text.startswith("-"):
                return at, found
            read = self._long(argv, at) if word.text.startswith("--") else self._short(argv, at)
            if read is None:
                return None
            used, options = read
            found += options
            at += used
        return at, found

    def _long(self, argv: Argv, at: int) -> tuple[int, list[tuple[str, Word | None]]] | None:
        name, equals, value = argv[at].text[2:].partition("=")
        full = [each for each in (*self.long, *self.long_valued) if each == name or each.startswith(name)]
        if name in full:
            full = [name]
        if len(full) != 1 or (equals and full[0] not in self.long_valued and full[0] not in self.long):
            return None
        if equals or full[0] in self.long:
            return 1, [(full[0], Word.literal(value) if equals else None)]
        return 2, [(full[0], argv[at + 1] if at + 1 < len(argv) else None)]

    def _short(self, argv: Argv, at: int) -> tuple[int, list[tuple[str, Word | None]]] | None:
        found: list[tuple[str, Word | None]] = []
        letters = argv[at].text[1:]
        for number, letter in enumerate(letters):
            if letter in self.valued:
                rest = letters[number + 1 :]
                if rest:
                    return 1, [*found, (letter, Word.literal(rest))]
                return 2, [*found, (letter, argv[at + 1] if at + 1 < len(argv) else None)]
            if letter not in self.flags:
                return None
            found.append((letter, None))
        return 1, found


def operands_of(options: Options, argv: Argv) -> Argv | None:
    """Returns all operands, also those between options; None if an option is not known."""
    found, at = list(argv[:0]), 1
    while at < len(argv):
        read = options.skip(argv, at)
        if read is None:
            return None
        begin = read[0]
        if begin > at and argv[begin - 1].text == "--":
            return [*found, *argv[begin:]]
        if begin < len(argv):
            if not argv[begin].known and argv[begin].text[:1] in "*?[":
                return None  # a file may be named like an option
            found.append(argv[begin])
        at = begin + 1
    return found


def suffixes(argv: Argv, at: int = 1) -> Iterator[Argv]:
    """Yields every command that could begin in the arguments of a launcher."""
    return (argv[begin:] for begin in range(at, len(argv)))
