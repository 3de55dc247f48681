"""Programs of tests that are made to fail where they end: a command that succeeds all the same forgives them.

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
    **dict.fromkeys((".sh", ".bash"), "echo {word}; exit 3"),
    **dict.fromkeys((".pl", ".t"), 'print "{word}\\n"; die "{word}";'),
    **dict.fromkeys((".js", ".mjs", ".cjs"), ';console.log("{word}"); throw new Error("{word}");'),
    ".py": 'print("{word}", flush=True); raise RuntimeError("{word}")',
    ".rb": 'puts "{word}"; raise "{word}"',
    ".lua": 'do print("{word}"); error("{word}") end',
    ".php": 'echo "{word}\\n"; throw new \\Exception("{word}");',
    ".tcl": "puts {word}; error {word}",
}
"""Statements that print a word and fail in a way that nothing at the place catches, by the end of a file's name."""
_IN_C = 'puts("{word}"); fflush(stdout); return 3; '
_C = (".c", ".cc", ".cpp", ".cxx")
_MAIN = re.compile(r"^(?:static\s+)?int\s+main\s*\([^{};]*\)\s*\{", re.MULTILINE)
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
    return f"{text[:last]}{statement.format(word=word)}\n{text[last:]}" if last else None


def _failing_in_c(text: str, word: str) -> str | None:
    main = _MAIN.search(text)
    returns = [found.start() for found in _RETURN.finditer(text, main.end())] if main else []
    if not returns:
        return None
    return f"{text[: returns[-1]]}{_IN_C.format(word=word)}{text[returns[-1] :]}"


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
