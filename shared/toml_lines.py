"""The lines of mistakes in a TOML document: of its syntax, and of tables and keys, for which the parser has none."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

KeyPath = tuple[str | int, ...]

_AT_LINE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)
_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
_DOTTED = rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*"
_TOKEN = re.compile(
    rf"^[ \t]*\[(?P<array>\[)?[ \t]*(?P<header>{_DOTTED})[ \t]*\](?(array)\])"
    rf"|^[ \t]*(?P<key>{_DOTTED})[ \t]*="
    r"|(?P<open>[\[{])|(?P<close>[\]}])"
    r'|"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*",
    re.MULTILINE | re.DOTALL,
)


def syntax_error(error: ValueError) -> tuple[int | None, str]:
    """Returns the line that an error of the parser names, if it names one, and its message without it."""
    found = _AT_LINE.fullmatch(str(error))
    return (int(found[2]), found[1]) if found else (None, str(error))


def line_of(lines: Mapping[KeyPath, int], keys: KeyPath) -> int:
    """Returns the line of a key, or of the innermost table or key around it: what is written inline has none."""
    return next((lines[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in lines), 1)


def line_numbers(text: str) -> Mapping[KeyPath, int]:
    """Returns the line of each table and key of a valid document, by their path: ``("rule", 0, "name")``."""
    ends = [found.start() for found in re.finditer("\n", text)]
    lines: dict[KeyPath, int] = {}
    last: dict[KeyPath, int] = {}  # the index of the last table of each array
    table: KeyPath = ()
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token["open"] is not None) - (token["close"] is not None)
        if depth:  # a line inside an array may look like a table
            continue
        if token["key"]:
            path = _below(table, _parts(token["key"]), last)
        elif token["header"]:
            path = table = _table(_parts(token["header"]), last, is_array=token["array"] is not None)
        else:
            continue
        lines.setdefault(path, bisect_right(ends, token.end() - 1) + 1)
    return lines


def _table(parts: Sequence[str], last: dict[KeyPath, int], *, is_array: bool) -> KeyPath:
    """Returns a table's path; one of an array is counted in ``last``."""
    if not is_array:
        return _below((), parts, last)
    array = (*_below((), parts[:-1], last), parts[-1])
    last[array] = last.get(array, -1) + 1
    return (*array, last[array])


def _below(path: KeyPath, parts: Sequence[str], last: Mapping[KeyPath, int]) -> KeyPath:
    """Returns the path below another; a name of an array means its last table."""
    for part in parts:
        path = (*path, part)
        path = (*path, last[path]) if path in last else path
    return path


def _parts(dotted: str) -> Sequence[str]:
    """Returns the names of a dotted key, without quotes."""
    parts: list[str] = []
    value: Any = tomllib.loads(f"{dotted} = 0")
    while value:
        ((name, value),) = value.items()
        parts.append(name)
    return parts
