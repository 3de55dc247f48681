"""Programs of tests that are made to fail where they end: a command that still succeeds ignores failures.

The code under test may decide how its process ends: by a trap, a hook of the exit, a destructor, a handler of what
nothing catches. Where only an exit code is known, each program that the command names prints a word and fails, behind
all that it loads. Where the word came and the command succeeds, its exit code proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import PurePosixPath
from secrets import token_hex

from .file_texts import TESTS

_MAX_FILES = 20
_FAILURES: Mapping[str, str] = {
    **dict.fromkeys((".sh", ".bash"), "printf %s%s {one} {two}; echo; exit 3"),
    **dict.fromkeys((".pl", ".t"), 'print "{one}" . "{two}", "\\n"; die "{one}";'),
    **dict.fromkeys((".js", ".mjs", ".cjs"), ';console.log("{one}" + "{two}"); throw new Error("{one}");'),
    ".py": 'print("{one}" + "{two}", flush=True); raise RuntimeError("{one}")',
    ".rb": 'puts "{one}" + "{two}"; raise "{one}"',
    ".lua": 'do print("{one}" .. "{two}"); error("{one}") end',
    ".php": 'echo "{one}" . "{two}", "\\n"; throw new \\Exception("{one}");',
    ".tcl": "puts -nonewline {one}; puts {two}; error {one}",
}
"""Statements that print a word and fail in a way that nothing at the place catches, by the end of a file's name.

The word is put together of two parts: a statement within a text of several lines, which a program prints, has no word.
"""
_IN_C = 'printf("%s%s\\n", "{one}", "{two}"); fflush(stdout); return 3; '
_C = (".c", ".cc", ".cpp", ".cxx")
_MAIN = re.compile(r"^(?:static[ \t]{1,8})?int\s{1,8}main\s{0,8}\([^{};]{0,200}\)\s{0,8}\{", re.MULTILINE)
_RETURN = re.compile(r"^[ \t]*return\b", re.MULTILINE)
_SHELL = re.compile(r"#!.*\b(?:ba|da|z|k)?sh\b")
_STATEMENT = re.compile(
    r"^(?![ \t}\])#]|//|/\*|\*|=|__END__|__DATA__|(?:else|elif|fi|done|esac|end|then|do)\b(?!\s*\())\S", re.MULTILINE
)
_END = re.compile(r"^(?:__END__|__DATA__|=\w+)\b", re.MULTILINE)


def failing(path: str, text: str, word: str) -> str | None:
    """Returns a program that prints a word and fails before its last statement; None where it has no such place."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _C:
        return _failing_in_c(text, word)
    statement = _FAILURES.get(suffix) or (_FAILURES[".sh"] if _SHELL.match(text) else None)
    if statement is None:
        return None
    end = found.start() if suffix in (".pl", ".t") and (found := _END.search(text)) else len(text)
    *_, last = [0, *(found.start() for found in _STATEMENT.finditer(text, 0, end))]
    return f"{text[:last]}{_filled(statement, word)}\n{text[last:]}" if last else None


def _failing_in_c(text: str, word: str) -> str | None:
    if not (main := _MAIN.search(text)):
        return None
    end = text.find("\n}", main.end())
    returns = [found.start() for found in _RETURN.finditer(text, main.end(), end if end > 0 else len(text))]
    return f"{text[: returns[-1]]}{_filled(_IN_C, word)}{text[returns[-1] :]}" if returns else None


def _filled(statement: str, word: str) -> str:
    half = len(word) // 2
    return statement.format(one=word[:half], two=word[half:])


def make_fail(
    paths: Collection[str],
    named: Collection[str],
    read: Callable[[str], bytes | None],
    write: Callable[[str, bytes], None],
) -> dict[str, str]:
    """Makes the programs of tests fail that a command names, else all of them; returns their words by path. Blocks.

    Args:
        paths: The files of the ground that the run did not change.
        named: Those that the command names.
        read: Reads a file of the ground.
        write: Writes one.
    """
    words = dict[str, str]()
    for path, text in _programs(paths, named, read):
        word = f"x{token_hex(8)}"
        if (changed := failing(path, text, word)) is not None and len(words) < _MAX_FILES:
            write(path, changed.encode("utf-8", "surrogateescape"))
            words[path] = word
    return words


def _programs(
    paths: Collection[str], named: Collection[str], read: Callable[[str], bytes | None]
) -> Iterator[tuple[str, str]]:
    wanted = {path for path in paths if path in named and not path.endswith(_C)}
    wanted |= {path for path in paths if path.endswith(_C) and (path in named or TESTS.match(path))}
    for path in sorted(wanted or {path for path in paths if TESTS.match(path)}):
        if data := read(path):
            yield path, data.decode("utf-8", "surrogateescape")
