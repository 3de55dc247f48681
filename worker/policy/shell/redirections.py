"""Lines that are not plain without their redirections, and the commands in them that get an input."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .programs import SHELLS

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
_DOCUMENT = re.compile(
    r"\\.|'[^']*+'|\"(?:[^\"\\]|\\.)*+\"|(?<![^\s;&|()])\#[^\n]*+|<<<"
    r"|(?P<other>\(\(|\[\[|\blet\b)|<<(?P<tabs>-?)[ \t]*+(?P<quote>[\"']?)(?P<end>\w++)(?P=quote)|(?P<newline>\n)",
    re.DOTALL,
)
"""The beginning of a here-document, unless ``other`` stands before it: there, `<<` may be arithmetic."""
_MAY_START_SHELL = SHELLS | {"at", "batch", "su", "chroot", "nsenter", "unshare", "newgrp", "sg", "runuser"}


def without_documents(line: str) -> str:
    """Returns a line without the bodies of its here-documents, which are data, but with those that a shell may get."""
    kept, ends = list[str](), list[tuple[str, bool]]()
    at = begun = position = 0
    is_other = False
    while found := _DOCUMENT.search(line, position):
        position = found.end()
        is_other = is_other or found["other"] is not None
        if found["end"] and not is_other:
            ends.append((found["end"], bool(found["tabs"])))
        if not found["newline"]:
            continue
        words = _SEPARATORS.sub(" ", _QUOTES.sub("", line[begun:position])).split()
        if ends and not any(word.rpartition("/")[2] in _MAY_START_SHELL for word in words):
            kept.append(line[at:position])
            at = position = _end_of_documents(line, position, ends)
        ends.clear()
        begun, is_other = position, False
    return "".join([*kept, line[at:]])


def _end_of_documents(line: str, at: int, ends: Sequence[tuple[str, bool]]) -> int:
    for end, has_tabs in ends:
        text = None
        while text != end and at < len(line):
            newline = line.find("\n", at)
            text, at = line[at:newline] if newline >= 0 else line[at:], newline + 1 or len(line)
            text = text.lstrip("\t") if has_tabs else text
    return at


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
