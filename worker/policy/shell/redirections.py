"""Lines that are not plain without their redirections, and the commands in them that get an input."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_FILE, _TEXT = "\0", "\1"
"""What stands in the place of a redirection of the input: from a file, or from a text in the line."""
_TARGET = (
    r"(?:\"[^\"\n;&|<>]*+\"|'[^'\n;&|<>]*+'|\\.|\$\{[^{}\s;&|<>]*+\}|\$\([^()\n]*+\)|`[^`\n]*+`"
    r"|[^\s;&|<>(){}`\"'\\])*+"
)
_TOKEN = re.compile(
    r"\\.|(?P<single>'[^']*+')|(?P<double>\"(?:[^\"\\]|\\.)*+\")"
    r"|(?:(?<![^\s;&|(){}<>\"'`])(?P<number>\d++|\{\w++\}))?"
    r"(?P<operator><<<|<<-?|<>|<&|<(?!\()|&>>?|>>|>\||>&|>(?!\())"
    rf"[ \t]*+(?P<target>{_TARGET})",
    re.DOTALL,
)
_NOTHING = re.compile(r"[\"']?/dev/null[\"']?|-")
_EXPANSION = re.compile(r"[\"']?[$`]")
_SEPARATORS = re.compile(r"([;&\n(){}<>`|]+)")
_QUOTES = re.compile(r"[\"'\\]")
_HAS_GROUP_WITH_INPUT = re.compile(
    rf"(?:[)}}]|\b(?:done|fi|esac))[\s\"']*+{_FILE}"
    r"|(?<!\|)\|&?\s*+(?:[({]|(?:while|until|for|if|case|select)\b)"
    r"|>\(|\(\s*+\)|\bfunction\s"
)
"""Where several commands together may get a file or a pipe; a function may get one where it is called."""


def without_redirections(line: str) -> str:
    """Returns a line with a mark in the place of each redirection of the input, and nothing in that of others."""
    expansions = list[str]()

    def replaced(found: re.Match[str]) -> str:
        if quoted := found["single"] or found["double"]:  # it may be the code of a shell
            return f"{quoted[0]}{without_redirections(quoted[1:-1])}{quoted[-1]}"
        number, operator, target = found["number"], found["operator"], found["target"]
        if not operator:
            return found[0]
        if "$(" in target or "`" in target:
            expansions.append(without_redirections(target))
        is_input = operator[0] == "<" if number is None else not number.strip("0")
        if not is_input or _NOTHING.fullmatch(target):
            return " "
        is_text = operator.startswith("<<") and not (operator == "<<<" and _EXPANSION.match(target))
        return f" {_TEXT if is_text else _FILE} "

    return "\n: ".join([_TOKEN.sub(replaced, line.replace("\\\n", "")), *expansions])


def commands_with_input(line: str) -> Iterator[Sequence[str]]:
    """Yields the words of each command that may get a pipe or a file; ``line`` is without redirections."""
    pieces = _SEPARATORS.split(line)
    of_group = _HAS_GROUP_WITH_INPUT.search(line) is not None or any(map(_sets_input, pieces[::2]))
    before = ""
    for at, piece in enumerate(pieces):
        marked = _QUOTES.sub("", piece).split()
        words = [word for word in marked if word not in (_FILE, _TEXT)]
        if at % 2 or not words:
            before += piece.strip()
            continue
        if _FILE in marked or before.count("|") == 1 or (of_group and _TEXT not in marked):
            yield words
        before = ""


def _sets_input(command: str) -> bool:
    """Whether a command is ``exec < FILE``, which is the input of all after it."""
    return _FILE in command and _QUOTES.sub("", command).replace(_FILE, " ").split()[-1:] == ["exec"]
