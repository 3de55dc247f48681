"""The commands of a line, compared with the prefixes that rules name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from .shell import Classified, SubCommand
from .shell.forbidden import Words, name_of

_NOT_PLAIN = re.compile(r"[;&|<>()`$\n\r\0]")
"""What is not part of the words of one command."""


def prefix_words(prefix: str) -> tuple[str, ...]:
    """Returns the words of a prefix. Raises ValueError for one without words or with open quotes."""
    try:
        words = tuple(shlex.split(prefix))
    except ValueError as error:
        raise ValueError(f"{prefix!r} is not made of words: {error}") from None
    if not words:
        raise ValueError("a prefix needs a word, such as 'git status'")
    if _NOT_PLAIN.search(prefix):
        raise ValueError(f"{prefix!r} is not the beginning of one command: write the words of one, without operators")
    return words


def all_begin(line: Classified, prefixes: Sequence[Sequence[str]]) -> bool:
    """Whether every command of a plain line that needs permission begins with one of the prefixes."""
    return line.covered(lambda command: _begins(command.words, prefixes))


def any_begins(line: Classified, prefixes: Sequence[Sequence[str]]) -> bool:
    """Whether a command that the line runs, or may run, begins with one of the prefixes; `/usr/bin/git` as `git`.

    In a line that is not plain the program of a prefix counts wherever it stands.
    """
    if not line.commands:
        words = Words.of(line.text)
        return any(words.hold(name_of(prefix[0])) for prefix in prefixes)
    return any(_begins(words, prefixes) for command in line.commands for words in _spelled(command, prefixes))


def _begins(words: Sequence[str], prefixes: Sequence[Sequence[str]]) -> bool:
    return any(tuple(words[: len(prefix)]) == tuple(prefix) for prefix in prefixes)


def _spelled(command: SubCommand, prefixes: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
    """Yields the words of a command, and of those that it may start, as they are compared with prefixes."""
    yield command.words
    programs = {prefix[0] for prefix in prefixes}
    for words in (command.words, command.may_start):
        for at, word in enumerate(words[: 1 if words is command.words else None]):
            for name in {word, name_of(word)} & programs:
                yield [name, *words[at + 1 :]]
                yield _without_options([name, *words[at + 1 :]])


def _without_options(words: Sequence[str]) -> Sequence[str]:
    """Returns a command without the options before its subcommand: those of git, some of which have a value."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path") else 1
    return [words[0], *words[at:]]
