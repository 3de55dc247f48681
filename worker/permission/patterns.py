"""Patterns of commands: what a remembered answer about a command line permits besides that line."""

from __future__ import annotations

from ..policy.shell import Classified


def command_patterns(line: Classified) -> list[list[str]]:
    """Returns the patterns of the commands of a plain line that need permission.

    Empty where an answer about one of them is not remembered: it starts programs, forces, writes elsewhere or works on
    what another command prints; then only the line as it is can be permitted, once.
    """
    patterns = [command.pattern for command in line.asking]
    return [list(pattern) for pattern in dict.fromkeys(patterns)] if all(patterns) else []
