"""Aliases of git: a subcommand that git does not have may stand for any other one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .forbidden import name_of

_NAMES = """
add am annotate apply archimport archive backfill bisect blame branch bugreport bundle cat-file check-attr
check-ignore check-mailmap check-ref-format checkout checkout-index cherry cherry-pick citool clean clone column
commit commit-graph commit-tree config count-objects credential credential-cache credential-store cvsexportcommit
cvsimport cvsserver daemon describe diagnose diff diff-files diff-index diff-pairs diff-tree difftool fast-export
fast-import fetch fetch-pack filter-branch fmt-merge-msg for-each-ref format-patch fsck fsck-objects gc
get-tar-commit-id gitk grep gui hash-object help hook http-backend http-fetch http-push imap-send index-pack init
init-db instaweb interpret-trailers last-modified lfs log ls-files ls-remote ls-tree mailinfo mailsplit maintenance
merge merge-base merge-file merge-index merge-one-file merge-tree mergetool mktag mktree multi-pack-index mv
name-rev notes p4 pack-objects pack-redundant pack-refs patch-id pickaxe prune prune-packed pull push quiltimport
range-diff read-tree rebase receive-pack reflog refs remote repack replace replay repo request-pull rerere reset
restore rev-list rev-parse revert rm scalar send-email send-pack shell shortlog show show-branch show-index show-ref
sparse-checkout stage stash status stripspace submodule subtree svn switch symbolic-ref tag unpack-file
unpack-objects update-index update-ref update-server-info upload-archive upload-pack var verify-commit verify-pack
verify-tag version whatchanged worktree write-tree
"""
_SUBCOMMANDS = frozenset(_NAMES.split())
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
