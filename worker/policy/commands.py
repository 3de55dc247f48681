"""The words of commands, compared with the prefixes that rules name.

Only a shell knows what a command line does. So a line allows only what can be read off it without one, and a rule that
asks or denies compares every piece of the line that could be a command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

_MAX_PLAIN = 10_000
"""Characters; splitting takes long, and a longer line is hardly what a rule means."""
_NOT_PLAIN = re.compile(r"[;&|<>()`$\n\r\0]")
"""What makes a line compound, redirects, or is replaced by the shell. In quotes, too: a quote may end elsewhere."""
_BETWEEN = re.compile(r"[;&|\n\r(){}`<>]|\$\(")
_QUOTES = re.compile(r"[\"'\\]")
_BEFORE = re.compile(
    r"[A-Za-z_]\w*\+?=.*|[-!].*|then|do|else|elif|if|while|until"
    r"|(?:.*/)?(?:time|exec|eval|command|env|sudo|nohup|xargs|(?:ba|da|z)?sh)"
)
"""Words that may precede a command: assignments, keywords, programs that start another one, and their options."""


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


def begins_plainly(line: str, prefixes: Sequence[Sequence[str]]) -> bool:
    """Whether a line is one plain command that begins with one of the prefixes."""
    if len(line) > _MAX_PLAIN or _NOT_PLAIN.search(line):
        return False
    try:
        return _begins(shlex.split(line), prefixes)
    except ValueError:
        return False


def begins_anywhere(line: str, prefixes: Sequence[Sequence[str]]) -> bool:
    """Whether any piece of the line that could be a command begins with one of the prefixes."""
    return any(_begins(words, prefixes) for words in _possible_commands(line, max(map(len, prefixes))))


def _begins(words: Sequence[str], prefixes: Sequence[Sequence[str]]) -> bool:
    return any(tuple(words[: len(prefix)]) == tuple(prefix) for prefix in prefixes)


def _possible_commands(line: str, most: int) -> Iterator[Sequence[str]]:
    """Yields the first words of every possible command, quoted or not; `/usr/bin/git` also as `git`."""
    for piece in _BETWEEN.split(line.replace("\\\n", "")):
        words = _QUOTES.sub("", piece).split()
        for at, word in enumerate(words):
            yield words[at : at + most]
            yield [word.rpartition("/")[2], *words[at + 1 : at + most]]
            if not _BEFORE.fullmatch(word):
                break
