"""Lines that need no parser: one command, made of characters without a meaning for the shell."""

from __future__ import annotations

import re

from deputize.worker.policy.shell.names import names

_PLAIN = re.compile(r"""[ \t]*+(?:(?:[A-Za-z0-9_./:,@%+=-]|'[^'\n]*+'|"[^"$`\\!\n]*+")++[ \t]*+)++""")
_PIECE = re.compile(r"""'([^']*)'|"([^"]*)"|([^'" \t]+)|([ \t]+)""")
_KEYWORDS = names(
    "if then else elif fi do done case esac while until for in select function time coproc let declare typeset "
    "local export readonly nameref"
)


def plain_words(line: str) -> list[str] | None:
    """Returns the words of a line that is one command without expansions, or None where the parser has to decide."""
    if not _PLAIN.fullmatch(line):
        return None
    words: list[str] = []
    begins = True
    for single, double, bare, space in _PIECE.findall(line):
        if space:
            begins = True
        elif begins:
            words.append(single + double + bare)
            begins = False
        else:
            words[-1] += single + double + bare
    first = line.split(maxsplit=1)[0] if words else ""
    return None if not words or "=" in first or first in _KEYWORDS else words
