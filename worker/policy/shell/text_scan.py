"""The pieces of a text that could be commands, for lines that the parser cannot read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_BETWEEN = re.compile(r"[;&|\n\r(){}`<>]|\$\(")
_QUOTES = re.compile(r"[\"'\\]")
_BEFORE = re.compile(
    r"[A-Za-z_]\w*\+?=.*|[-!].*|\d+\w?|then|do|else|elif|if|while|until"
    r"|(?:.*/)?(?:time|exec|eval|command|env|sudo|nohup|xargs|timeout|nice|coproc|(?:ba|da|z)?sh)"
)
"""Words that may precede a command: assignments, keywords, programs that start another one, and their options."""


def possible_commands(line: str, most: int) -> Iterator[Sequence[str]]:
    """Yields the first words of every possible command, quoted or not."""
    for piece in _BETWEEN.split(line.replace("\\\n", "")):
        words = _QUOTES.sub("", piece).split()
        for at, word in enumerate(words):
            yield words[at : at + most]
            if not _BEFORE.fullmatch(word):
                break
