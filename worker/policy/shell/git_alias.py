"""Aliases of git: a subcommand that git does not have may stand for any other one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .forbidden import name_of

_SUBCOMMANDS = frozenset(Path(__file__).with_name("git_subcommands.txt").read_text("utf-8").split())
"""All but those that execute a subcommand which an argument names, such as for-each-repo."""
_WITH_VALUE = frozenset(
    ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix", "--attr-source")
)
"""Options of git whose value is the next word."""
_LAUNCHER = re.compile(
    r"\d[\w.]*|\w+=.*|(?:.*/)?(?:env|xargs|timeout|nice|ionice|stdbuf|setsid|nohup|time|watch|uv|run|npx|strace|parallel"
    r"|command|exec|busybox)",
    re.DOTALL,
)
"""Words behind which a program may stand; also behind an option, and behind its value."""
_EXECUTES = frozenset(("-exec", "-execdir", "-ok", "-okdir"))


def is_alias_of_git(words: Sequence[str]) -> bool:
    """Whether a command starts git with a subcommand that git does not have, or that executes another one.

    The alias may be defined anywhere: in a file of the configuration, by an option, by a variable.
    """
    may_begin, may_be_value = True, False
    for at, word in enumerate(words):
        if name_of(word) == "git" and (may_begin or words[at - 1] in _EXECUTES):
            subcommand = _subcommand(words[at + 1 :])
            return subcommand is not None and subcommand not in _SUBCOMMANDS
        is_option = word.startswith("-")
        may_begin &= is_option or may_be_value or _LAUNCHER.fullmatch(word) is not None
        may_be_value = is_option
    return False


def _subcommand(words: Sequence[str]) -> str | None:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _WITH_VALUE else 1
    return words[at] if at < len(words) else None
