"""Whether the unit tests of a file in Rust, which are beside its code, are all there as they were.

Whole tests may be added, and functions that exist only in tests, of names that the file did not have. None of them may
have anything that counts outside of its own body.
"""

from __future__ import annotations

import re

_FIRST_TEST = re.compile(r"#\[(?:\w+::)?test\b|#\[cfg\(test\)\]")
_ADDED = re.compile(
    r"#\[(?:(?:\w+::)?test|cfg\(test\))\](?:\s*#\[[^\]\n]*\])*\s*"
    r"(?:pub(?:\([^)]*\))? )?(?:async )?fn (?P<name>\w+)\([^{};]*\{"
)
_WORD = re.compile(r"\w+")
_PIECE = re.compile(
    r"""//[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/|r(?P<marks>#+)".*?"(?P=marks)|r"[^"]*"|"(?:[^"\\]|\\.)*+\""""
    r"""|'(?:[^'\\\n]|\\(?:u\{[^}]*\}|x..|.))'|[{}]""",
    re.DOTALL,
)
_REACHING = re.compile(
    r"\b(?:impl|macro_rules|macro|mod|extern|static|unsafe|trait|type)\b"
    r"|no_mangle|export_name|link_section|global_allocator|panic_handler"
)
_MAX_CHARS = 512 * 1024


def added_tests(before: bytes, now: bytes) -> set[str] | None:
    """Returns the names of the functions that were added for tests; None where tests from before may be others."""
    try:
        old, new = before.decode(), now.decode()
    except UnicodeDecodeError:
        return None
    if max(len(old), len(new)) > _MAX_CHARS:
        return None
    rest, names = _without_added(new, old)
    return names if _tests(rest) == _tests(old) else None


def _tests(text: str) -> list[str]:
    """Returns the lines from the first test on."""
    first = _FIRST_TEST.search(text)
    return [line.strip() for line in text[first.start() :].splitlines() if line.strip()] if first else []


def _without_added(text: str, before: str) -> tuple[str, set[str]]:
    """Returns a file without the functions for tests whose names it did not have before, and these names."""
    parts, names, at = list[str](), set[str](), 0
    words = {*_WORD.findall(before)}
    for found in _ADDED.finditer(text):
        if found.start() < at:
            continue
        if (end := _end(text, found.end())) is None:
            break
        if found["name"] in words or _REACHING.search(text, found.start(), end):
            continue
        parts.append(text[at : found.start()])
        names.add(found["name"])
        at = end
    return "".join([*parts, text[at:]]), names


def _end(text: str, at: int) -> int | None:
    """Returns where the body ends that begins before a place."""
    depth = 1
    for piece in _PIECE.finditer(text, at):
        depth += (piece[0] == "{") - (piece[0] == "}")
        if depth == 0:
            return piece.end()
    return None
