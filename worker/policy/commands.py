"""The commands of a line, compared with the prefixes that rules name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from deputize.worker.policy.shell import Classified
from deputize.worker.policy.shell.text_scan import possible_commands

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
    """Whether every command of a line begins with one of the prefixes, and the line does nothing else."""
    return line.covered(lambda command: _begins(command.words, prefixes))


def any_begins(line: Classified, prefixes: Sequence[Sequence[str]]) -> bool:
    """Whether a command that the line runs, or may run, begins with one of the prefixes; `/usr/bin/git` as `git`."""
    most = max(map(len, prefixes))
    unread = (words for text in line.unread for words in possible_commands(text, most))
    found = (*(command.words for command in line.commands), *line.possible, *unread)
    return any(_begins(words, prefixes) or _begins(_by_name(words, most), prefixes) for words in found)


def _begins(words: Sequence[str], prefixes: Sequence[Sequence[str]]) -> bool:
    return any(tuple(words[: len(prefix)]) == tuple(prefix) for prefix in prefixes)


def _by_name(words: Sequence[str], most: int) -> Sequence[str]:
    return [words[0].rpartition("/")[2], *words[1:most]] if words else ()
