"""Words of commands as the shell would pass them, as far as that can be known without running it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from deputize.worker.policy.shell.ansi_c import decoded
from deputize.worker.policy.shell.parser import Node

UNKNOWN = "\0"
"""Stands in texts for what only the shell knows. Lines with control characters are refused, so it is unambiguous."""
HOME = "\1"
"""Stands for an unquoted ``~`` and for ``$HOME``."""
MAX_GUESSES = 48
MAX_WORDS = 4096
MAX_WORK = 1_000_000
"""Characters that are copied for the braces of one word."""
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")

_GLOB = re.compile(r"[*?]|\[.+\]", re.DOTALL)


class Scope(Protocol):
    """What is known about the variables of a line."""

    def guesses(self, part: Node) -> Sequence[str]:
        """Returns the texts that an expansion may have."""
        ...

    def is_vague(self, name: str) -> bool:
        """Whether a variable may have any value."""
        ...


class _NoScope:
    def guesses(self, part: Node) -> Sequence[str]:
        return ()

    def is_vague(self, name: str) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command. ``text`` has UNKNOWN for each expansion whose text is not known."""

    text: str
    shown: str
    globs: bool = False
    """Whether it is a pattern of file names."""
    splits: bool = False
    """Whether it may become several words, or none."""
    vague: bool = False
    """Whether it contains a variable, which may have any value."""
    guesses: tuple[str, ...] = ()
    """Texts that it may have. Only used to find what is forbidden."""

    @classmethod
    def literal(cls, text: str) -> Word:
        return cls(text, text)

    @property
    def known(self) -> bool:
        """Whether the command gets exactly this text."""
        return not (self.globs or UNKNOWN in self.text or HOME in self.text)


@dataclass(slots=True)
class _Cell:
    """A character of a word, or an expansion."""

    text: str
    active: bool
    """Whether it is unquoted, so that it can mean something to the shell."""
    guesses: Sequence[str] = ()
    shown: str = ""
    vague: bool = False


def expand(word: Node, scope: Scope) -> list[Word]:
    """Returns the words that a word of the syntax tree becomes: several where it has braces."""
    cells = list(_cells(word.get("Parts", []), False, scope))
    if cells and cells[0].active and cells[0].text == "~":
        cells[0] = _Cell(HOME, False, shown="~")
    return [_word(each) for each in itertools.islice(_without_braces(cells), MAX_WORDS)]


def literal_text(word: Node) -> str | None:
    """Returns the word's text if it is known, else None."""
    words = expand(word, _NoScope())
    return words[0].text if len(words) == 1 and words[0].known else None


def _word(cells: Sequence[_Cell]) -> Word:
    text = "".join(cell.text for cell in cells)
    return Word(
        text,
        "".join(cell.shown or cell.text for cell in cells),
        globs=_GLOB.search("".join(cell.text if cell.active else "\2" for cell in cells)) is not None,
        splits=any(cell.active and cell.text == UNKNOWN for cell in cells),
        vague=any(cell.vague for cell in cells),
        guesses=_guesses(cells),
    )


def _guesses(cells: Sequence[_Cell]) -> tuple[str, ...]:
    if not any(cell.guesses for cell in cells):
        return ()
    options = ([*cell.guesses] if cell.guesses else [cell.text] for cell in cells)
    combined = ("".join(each) for each in itertools.product(*options))
    texts = dict.fromkeys(itertools.islice(combined, MAX_GUESSES))
    # An empty variable before a slash is a mistake of the line's author at most, and would make most paths a root.
    begins_empty = cells[0].guesses and "" in cells[0].guesses
    return tuple(text for text in texts if not (begins_empty and text.startswith("/") and text[1:2] in ("", "*", ".")))


def _cells(parts: Sequence[Node], quoted: bool, scope: Scope) -> Iterator[_Cell]:
    for part in parts:
        match part["Type"]:
            case "Lit":
                yield from _unescaped(part.get("Value", ""), quoted)
            case "SglQuoted":
                text = part.get("Value", "")
                yield from (_Cell(char, False) for char in (decoded(text, UNKNOWN) if part.get("Dollar") else text))
            case "DblQuoted":
                yield from _cells(part.get("Parts", []), True, scope)
            case _:
                yield _expansion(part, quoted, scope)


def _unescaped(text: str, quoted: bool) -> Iterator[_Cell]:
    """Yields the characters of a literal; the parser has joined lines that a backslash continues."""
    at = 0
    while at < len(text):
        following = text[at + 1 : at + 2]
        if text[at] == "\\" and following and (not quoted or following in '$`"\\\n'):
            yield _Cell(following, False)
            at += 2
        else:
            yield _Cell(text[at], not quoted)
            at += 1


def _expansion(part: Node, quoted: bool, scope: Scope) -> _Cell:
    kind = part["Type"]
    if kind == "ParamExp":
        name = part.get("Param", {}).get("Value", "")
        plain = not set(part) - {"Type", "Short", "Param"}
        if plain and name == "HOME":
            return _Cell(HOME, False, shown="$HOME")
        shown = f"${name}" if plain else f"${{{name}…}}"
        return _Cell(UNKNOWN, not quoted, scope.guesses(part), shown, scope.is_vague(name))
    shown = {"CmdSubst": "$(…)", "ProcSubst": "<(…)", "ArithmExp": "$((…))"}.get(kind, "…")
    return _Cell(UNKNOWN, not quoted and kind != "ProcSubst", scope.guesses(part), shown)


def _without_braces(cells: list[_Cell]) -> Iterator[list[_Cell]]:
    """Yields the words after brace expansion, of sequences such as ``{1..9}`` only one with an unknown part."""
    waiting, work = [cells], 0
    while waiting:
        cells = waiting.pop()
        mask = "".join(cell.text if cell.active and len(cell.text) == 1 else "\2" for cell in cells)
        found = _BRACES.search(mask)
        if found is None:
            yield cells
            continue
        work += len(cells)
        choices = _choices(cells[found.start() + 1 : found.end() - 1], found[0][1:-1])
        before, after = cells[: found.start()], cells[found.end() :]
        if work > MAX_WORK:  # the first word only, and that there are others
            yield [cell for cell in (*before, *choices[0], *after) if not (cell.active and cell.text in "{,}")]
            yield [_Cell(UNKNOWN, True, shown="{…}")]
            return
        waiting += [[*before, *choice, *after] for choice in reversed(choices)]


def _choices(inside: list[_Cell], mask: str) -> list[list[_Cell]]:
    """Returns what stands between the commas of a pair of braces."""
    if "," not in mask:
        return [[_Cell(UNKNOWN, True, shown="{" + mask + "}")]]
    found: list[list[_Cell]] = []
    at = 0
    for choice in mask.split(","):
        found.append(inside[at : at + len(choice)])
        at += len(choice) + 1
    return found
