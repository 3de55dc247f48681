"""Whether arguments stay inside the workspace."""

from __future__ import annotations

from deputize.worker.policy.shell.judgement import Argv
from deputize.worker.policy.shell.words import HOME, UNKNOWN, Word
from deputize.worker.sandbox.environment import MOUNT

HARMLESS = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})


def why_elsewhere(words: Argv) -> str | None:
    """Returns why one of these arguments may be a path outside of the workspace, or None."""
    for word in words:
        if leaves_workspace(word):
            return f"may leave the workspace with {word.shown}"
    return None


def leaves_workspace(word: Word) -> bool:
    """Whether an argument is, or as an option contains, a path that may lie outside of the workspace."""
    if word.vague:
        return True
    text = word.text
    candidates = [text]
    if text.startswith("-"):
        candidates = [text.partition("=")[2], text[2:]]
    return any(map(_is_elsewhere, candidates))


def _is_elsewhere(path: str) -> bool:
    if path in HARMLESS or not path:
        return False
    if path.startswith(HOME) or ".." in path.split("/"):
        return True
    if UNKNOWN in path and path.startswith("/"):
        return True
    return path.startswith("/") and path != MOUNT and not path.startswith(f"{MOUNT}/")
