"""Aliases of git: a subcommand that not every git has may stand for any other one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .forbidden import name_of

_SUBCOMMANDS = frozenset(Path(__file__).with_name("git_subcommands.txt").read_text("utf-8").split())
"""Those that git 2.39 and each newer one has without further packages, so that git never looks for an alias.

Not among them: those that execute a subcommand which an argument names, such as for-each-repo, and deprecated ones.
"""
_WITH_VALUE = frozenset(
    ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix", "--attr-source")
)
"""Options of git whose value is the next word."""
_INSTALLS = re.compile(
    r"(?!.* (?:-o|--option))(?:env (?:\w+ )*?)?(?:apt|apt-get|apk|brew|dnf|yum|zypper) (?:-\S+ )*(?:install|add) .*"
)
"""A package manager that installs packages, one of which may be git."""
_MOST_OPTIONS = 64


def is_alias_of_git(words: Sequence[str], may_start: Sequence[str]) -> bool:
    """Whether a command may start git with a subcommand that it may lack, or that executes another one.

    The alias may be defined anywhere: in a file of the configuration, by an option, by a variable. ``may_start``:
    words of the command behind each of which another one may stand.
    """
    if _INSTALLS.fullmatch(" ".join(may_start)):
        return False
    return any(
        name_of(each[at]) == "git" and _is_alias(each[at + 1 :][:_MOST_OPTIONS])
        for each, at in ((words, 0), *((may_start, at) for at in range(1, len(may_start))))
    )


def _is_alias(words: Sequence[str]) -> bool:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _WITH_VALUE else 1
    if at >= len(words):
        return len(words) == _MOST_OPTIONS
    return words[at] not in _SUBCOMMANDS
