"""The matchers of rules from files: each key of a rule compares one property of a call or of its run.

An allow rule must match all paths and hosts of a call, any other rule one of them: in doubt the stricter.
"""

from __future__ import annotations

import operator
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import permutations
from pathlib import Path
from typing import Any

import regex
from pydantic_core import from_json, to_json

from ..sandbox.environment import MOUNT
from ..search.glob_pattern import GlobPattern
from ..text.compute_limit import ComputeLimit
from ..tools.base import AnyTool, Effect
from .base import PolicyCall, PolicyContext
from .shell import SubCommand
from .shell.forbidden import Words, name_of
from .shell.git_alias import is_alias_of_git
from .shell.programs import GIT_OPTIONS

Matches = Callable[[PolicyCall, PolicyContext], bool]

PATTERN_SECONDS = 0.25
"""Computing time for all patterns of one key; more and the call is denied, because it could be made to take long."""
MOST_ORDERED = 6
"""Keys of objects that one pattern may name: it is compared with each order of them."""
_COMPARISON = re.compile(r"(==|!=|<=|>=|<|>)?\s*(\d{1,9})")
_COMPARED: Mapping[str | None, Callable[[int, int], bool]] = {
    None: operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MOST_OPTIONS = 64
_NOT_PLAIN = re.compile(r"[;&|<>()`$\n\r\0]")
"""What is not part of the words of one command."""


def of_tool(patterns: Sequence[str], allows: bool) -> Matches:
    return lambda call, _: any(is_named(call.tool, pattern) for pattern in patterns)


def is_named(tool: AnyTool, pattern: str) -> bool:
    return pattern in tool.aliases or fnmatchcase(tool.name, pattern)


def of_kind(kinds: Sequence[str], allows: bool) -> Matches:
    return lambda call, _: call.tool.kind in kinds


def of_server(patterns: Sequence[str], allows: bool) -> Matches:
    return lambda call, _: _fits_any(call.tool.origin.server, patterns)


def _fits_any(text: str | None, patterns: Sequence[str]) -> bool:
    return text is not None and any(fnmatchcase(text, pattern) for pattern in patterns)


def of_annotations(wanted: Mapping[str, bool], allows: bool) -> Matches:
    def matches(call: PolicyCall, _: PolicyContext) -> bool:
        effect = call.tool.effect
        known = {"readOnlyHint": effect is Effect.PURE, "idempotentHint": effect is not Effect.EFFECTFUL}
        return wanted.items() <= known.items()

    return matches


def of_argument(wanted: Mapping[str, str], allows: bool) -> Matches:
    # In an allow rule `.` ends at a line end: what is allowed for one line must not bring others along.
    flags = 0 if allows else regex.DOTALL
    patterns = {name: regex.compile(pattern, flags) for name, pattern in wanted.items()}

    def matches(call: PolicyCall, _: PolicyContext) -> bool:
        limit = ComputeLimit(PATTERN_SECONDS)
        texts = ((_argument_texts(call.arguments.get(name), each.pattern), each) for name, each in patterns.items())
        return all(any(limit.matches_whole(pattern, text) for text in found) for found, pattern in texts)

    return matches


def argument_text(value: Any) -> str | None:
    """Returns the text that patterns are compared with: a string itself, other values as JSON; None for null."""
    if value is None or isinstance(value, str):
        return value
    return to_json(value, fallback=str).decode()


def _argument_texts(value: Any, pattern: str) -> Iterator[str]:
    """Yields the texts that stand for one value; none for null.

    The order of an object's keys has no meaning, so there is a text for each order of those that the pattern names.
    Raises TimeoutError where these are too many.
    """
    text = argument_text(value)
    if text is None:
        return
    yield text
    if isinstance(value, str | int | float):
        return
    plain = from_json(text)
    named = sorted({key for key in _keys(plain) if re.search(rf"(?<!\w){re.escape(key)}(?!\w)", pattern)})
    if len(named) > MOST_ORDERED:
        raise TimeoutError
    for order in permutations(named):
        ranks = {key: rank for rank, key in enumerate(order)}
        yield to_json(_ordered(plain, ranks)).decode()


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _keys(inner)


def _ordered(value: Any, ranks: Mapping[str, int]) -> Any:
    if isinstance(value, list):
        return [_ordered(each, ranks) for each in value]
    if not isinstance(value, dict):
        return value
    keys = sorted(value, key=lambda key: (ranks.get(key, len(ranks)), key))
    return {key: _ordered(value[key], ranks) for key in keys}


def of_command_prefix(prefixes: Sequence[str], allows: bool) -> Matches:
    wanted = [prefix_words(prefix) for prefix in prefixes]

    def matches(call: PolicyCall, _: PolicyContext) -> bool:
        line = call.line
        if line is None:
            return False
        if allows:  # each command of a plain line that needs permission, and no other line
            return line.covered(lambda command: _begins(command.words, wanted))
        if line.hidden_in:
            return True
        if not line.commands:  # it is not plain: the program of a prefix counts wherever it stands
            words = Words.of(line.text)
            return any(words.hold(name_of(prefix[0])) for prefix in wanted)
        return any(_may_begin(command, wanted) for command in line.commands)

    return matches


def prefix_words(prefix: str) -> tuple[str, ...]:
    """Returns the words of a prefix. Raises ValueError for one without words or with open quotes."""
    try:
        words = tuple(shlex.split(prefix))
    except ValueError as error:
        raise ValueError(f"{prefix!r} is not made of words: {error}") from None
    if not words:
        raise ValueError("a prefix needs a word, such as 'git status'")
    if _NOT_PLAIN.search(prefix):
        raise ValueError(f"{prefix!r} is not the beginning of one command: write the words of one, without operators")
    return words


def _begins(words: Sequence[str], prefixes: Sequence[Sequence[str]]) -> bool:
    return any(tuple(words[: len(prefix)]) == tuple(prefix) for prefix in prefixes)


def _may_begin(command: SubCommand, prefixes: Sequence[Sequence[str]]) -> bool:
    """Whether a command may be, or start, one that begins so: in doubt it may."""
    if command.text:
        words = Words.of(command.text)
        if any(words.hold(name_of(prefix[0])) for prefix in prefixes):
            return True
    if any(prefix[0] == "git" for prefix in prefixes) and is_alias_of_git(command.words, command.may_start):
        return True
    for words in _spelled(command, prefixes):
        cut = [prefix[: len(words)] for prefix in prefixes] if command.adds_input else prefixes
        if _begins(words, cut):
            return True
    return False


def _spelled(command: SubCommand, prefixes: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
    """Yields the words of a command, and of those that it may start, as they are compared with prefixes.

    `/usr/bin/git` is compared as `git`, too.
    """
    programs = {prefix[0] for prefix in prefixes}
    for words, at in ((command.words, 0), *((command.may_start, at) for at in range(len(command.may_start)))):
        for name in {words[at], name_of(words[at]), words[at][2:] if words[at][:1] == "-" else ""} & programs:
            yield (spelled := [name, *words[at + 1 :]])
            yield from _without_options(spelled)
        for name in programs:
            if (subcommand := name_of(words[at])).startswith(f"{name}-"):  # /usr/lib/git-core/git-push
                yield [name, subcommand[len(name) + 1 :], *words[at + 1 :]]


def _without_options(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields a command without the options before its subcommand, which may have values of their own."""
    begins = {1}
    for at in range(1, min(len(words), _MOST_OPTIONS)):
        if at in begins and words[at].startswith("-"):
            begins |= {at + 1, *([at + 2] * (words[at] not in GIT_OPTIONS and "=" not in words[at]))}
        elif at in begins:
            yield [words[0], *words[at:]]


def of_path(patterns: Sequence[str], allows: bool) -> Matches:
    # ``folder/**`` matches the folder itself, too: listing it is reading what is below
    folders = [folder for pattern in patterns if (folder := pattern.removesuffix("/**")) not in ("", pattern)]
    globs = [(pattern.startswith("/"), GlobPattern(pattern)) for pattern in (*patterns, *folders)]
    quantifier = all if allows else any

    def fits(path: str) -> bool:
        outside = path.startswith("/")
        return any(is_outside == outside and glob.matches(path.lstrip("/")) for is_outside, glob in globs)

    def matches(call: PolicyCall, policy_context: PolicyContext) -> bool:
        paths = call.touches.paths
        try:
            return bool(paths) and quantifier(fits(real_path(path, policy_context.workspace)) for path in paths)
        except OSError:  # a link that cannot be read, or that a command exchanges meanwhile
            return not allows

    return matches


def real_path(path: str, workspace: Path | None) -> str:
    """Returns a path with its links resolved: relative to the workspace if it is inside, else absolute."""
    root = os.path.realpath(workspace or MOUNT)
    path = path.replace("\0", "\ufffd")  # the tool refuses it
    inner = _inside(path, MOUNT, str(workspace or MOUNT), root)
    real = os.path.realpath(os.path.join(root, path if inner is None else inner))  # noqa: PTH118 - keeps `..`
    inner = _inside(real, root, MOUNT)
    return real if inner is None else inner


def _inside(path: str, *folders: str) -> str | None:
    """Returns the path relative to the first of the folders that contains it, or None."""
    return next(
        (path[len(folder) + 1 :] or "." for folder in folders if path == folder or path.startswith(f"{folder}/")), None
    )


def of_mode(modes: Sequence[str], allows: bool) -> Matches:
    return lambda _, policy_context: policy_context.mode in modes


def comparison(text: str) -> Callable[[int], bool]:
    """Returns the comparison of ``2`` or ``>= 2``. Raises ValueError for anything else."""
    found = _COMPARISON.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is neither a number nor a comparison such as '>= 1'")
    return lambda depth: _COMPARED[found[1]](depth, int(found[2]))


def of_depth(text: str, allows: bool) -> Matches:
    compare = comparison(text)
    return lambda _, policy_context: compare(policy_context.depth)


def of_label(wanted: Mapping[str, str], allows: bool) -> Matches:
    return lambda _, policy_context: all(
        _fits_any(policy_context.labels.get(name), [pattern]) for name, pattern in wanted.items()
    )


def of_taint(patterns: Sequence[str], allows: bool) -> Matches:
    return lambda _, policy_context: any(_fits_any(source, patterns) for source in policy_context.trust.tainted_by)


def of_host(patterns: Sequence[str], allows: bool) -> Matches:
    lower = [pattern.lower() for pattern in patterns]
    quantifier = all if allows else any

    def matches(call: PolicyCall, _: PolicyContext) -> bool:
        hosts = call.touches.hosts
        return bool(hosts) and quantifier(_fits_any(host.lower(), lower) for host in hosts)

    return matches


MATCHERS: Mapping[str, Callable[[Any, bool], Matches]] = {
    "tool": of_tool,
    "kind": of_kind,
    "server": of_server,
    "annotations": of_annotations,
    "argument": of_argument,
    "command_prefix": of_command_prefix,
    "path": of_path,
    "mode": of_mode,
    "depth": of_depth,
    "label": of_label,
    "host": of_host,
    "taint": of_taint,
}
"""Maps a rule's key to the factory of its matcher, which gets the key's value and whether the rule allows."""
