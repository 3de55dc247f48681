"""Hints for a content search without a match, and for a pattern that is not a regular expression."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from ...shared.errors import ToolError
from ..contracts import FileAccess, Sandbox
from ..text.east_asia import ENCODINGS
from ..text.encodings import other_encoding
from ..text.output import one_line
from ..workspace.files import named
from .grep import HEAD, MAX_FILES, GrepQuery, arguments_of, matches_of, parse_hits
from .ripgrep import run_ripgrep

_WIDE = ("utf-16le", "utf-16be")
_EXAMPLES = 3
"""Files listed for a near miss of the pattern."""


async def near_miss_hint(files: FileAccess, sandbox: Sandbox, query: GrepQuery) -> str:
    """Returns a hint at a similar pattern, or another encoding, that matches."""
    for nearly, words in _near_misses(query):
        if paths := await matches_of(files, sandbox, nearly):
            return f" It matches {words}, in {_names(files, paths)}."
    encoding, paths = await _matches_in_other_encodings(files, sandbox, query)
    if not paths:
        return ""
    return f" It matches in text in {encoding}, in {_names(files, paths)}: read_file shows it."


def _near_misses(query: GrepQuery) -> Iterator[tuple[GrepQuery, str]]:
    """Yields variations of the query that may match, with their descriptions."""
    pattern = query.pattern
    if not query.ignore_case and pattern.swapcase() != pattern:
        yield replace(query, ignore_case=True), "case-insensitively (ignore_case: true)"
    if "\\|" in pattern:
        other = pattern.replace("\\|", "|")
        yield (replace(query, pattern=other), f"as `{other}`, because only | without \\ separates alternatives")
    if (plain := _literal(pattern)) != pattern and "\n" not in pattern:
        yield replace(query, pattern=plain), f"as plain text, which is `{plain}`"
    first = re.split(r"\n|\\n", pattern.strip("\n"))[0]
    if first != pattern and first.strip():
        line = _literal(first) if "\n" in pattern else first
        yield replace(query, pattern=line), f"with its first line alone, `{line}`, as each line is searched by itself"


def _literal(text: str) -> str:
    """Returns the expression that matches the text itself."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)


def _names(files: FileAccess, paths: Sequence[str]) -> str:
    names = ", ".join(one_line(named(files, path)) for path in paths[:_EXAMPLES])
    return names + (", …" if len(paths) > _EXAMPLES else "")


async def explained(files: FileAccess, sandbox: Sandbox, query: GrepQuery, error: ToolError) -> ToolError:
    """Returns the error for a pattern that is not a regular expression, with one that may be meant."""
    if "parse error" not in error.message and "PCRE2" not in error.message:
        return error
    if query.pattern.startswith("*"):
        way = f"To find files by their names use glob with pattern {query.pattern!r}, or the parameter glob here."
        return ToolError(error.type, f"{error.message}\n{way}")
    literal = [_literal(query.pattern)]
    if "(?" not in query.pattern:  # else the sign after the bracket would have another meaning
        literal.insert(0, re.sub(r"(?<!\\)([()\[{}])", r"\\\1", query.pattern))
    for plain in literal:
        if paths := await matches_of(files, sandbox, replace(query, pattern=plain)):
            way = f"To take its signs literally pass `{plain}`: it matches in {_names(files, paths)}."
            return ToolError(error.type, f"{error.message}\n{way}")
    return ToolError(error.type, f"{error.message}\nTo take its signs literally pass `{literal[0]}`.")


async def _matches_in_other_encodings(
    files: FileAccess, sandbox: Sandbox, query: GrepQuery
) -> tuple[str, Sequence[str]]:
    """Returns the first other encoding in which the query matches, and the files; their form shows that they have it.

    Characters beyond ASCII are searched for in the encodings of East Asia, too.
    """
    wanted = replace(query, mode="files")
    for name in (*_WIDE, *(() if query.pattern.isascii() else ENCODINGS.values())):
        with suppress(ToolError):
            argv = [f"--encoding={name}", *arguments_of(files, wanted)]
            done = await run_ripgrep(sandbox, argv, files.mount, query.top)
            found = [path for path in [*parse_hits(done.stdout)][:MAX_FILES] if _is_in(files, path, name)]
            if found:
                return name, found
    return "", ()


def _is_in(files: FileAccess, path: str, name: str) -> bool:
    with suppress(ToolError):
        return other_encoding(files.head(path, HEAD)) == name
    return False
