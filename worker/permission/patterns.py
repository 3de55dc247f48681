"""Patterns of commands: what a remembered answer about a command line permits besides that line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell import Classified, SubCommand

_HAVE_SUBCOMMANDS = re.compile(
    "apt|apt-get|brew|bun|bundle|cargo|composer|conda|docker|dotnet|gh|git|go|gradle|helm|kubectl|make|mvn|npm|nx|pip3?"
    "|pnpm|podman|poetry|rustup|systemctl|terraform|uv|yarn"
)
"""Programs of which a subcommand is remembered, with any further words."""
_RUN_OTHERS = re.compile("run|exec|x|dlx|eval|config|alias")
"""Subcommands that may do anything with other words: only the same command is remembered."""
_KNOWN = re.compile(
    "basedpyright|black|cat|cp|cut|df|diff|du|echo|eslint|file|grep|head|isort|jest|ls|mkdir|mypy|prettier|printf"
    "|pyright|pytest|rg|ruff|sort|stat|tail|touch|tsc|uniq|vitest|wc"
)
"""Programs that are remembered with any words, because these change what they look at, and not what they do."""
_SUBCOMMAND = re.compile("[a-z][a-z0-9_-]*")


def command_patterns(line: Classified) -> list[list[str]]:
    """Returns the patterns of the commands of a line that need permission.

    Empty where the line does more than these commands, or only the shell knows what one of them does.
    """
    needed = [command for command in line.commands if command.decision is not Decision.ALLOW]
    patterns = [pattern_of(command) for command in needed]
    return [] if line.effects or not all(patterns) else [list(pattern) for pattern in dict.fromkeys(patterns)]


def pattern_of(command: SubCommand) -> Sequence[str]:
    """Returns the words that are remembered; they end with ``*`` if any others may follow. Empty: nothing is."""
    if not command.pattern or command.decision is Decision.DENY:
        return ()
    program, *others = command.words
    if _KNOWN.fullmatch(program):
        return (program, "*")
    subcommand = others[0] if others and _HAVE_SUBCOMMANDS.fullmatch(program) else ""
    if _SUBCOMMAND.fullmatch(subcommand) and not _RUN_OTHERS.fullmatch(subcommand):
        return (program, subcommand, "*")
    return () if any("$" in word or "`" in word for word in command.words) else command.words
