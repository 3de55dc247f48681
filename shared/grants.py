"""Grants: what an answer to a permission request permits from then on, for calls of the same run tree.

A grant names a prefix of a command, a host, a tool or an MCP server, never a whole compound line: such a line is
covered only if each of its commands is. A grant answers questions; what the policy denies stays denied.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from pydantic import Field

from .permission import PermissionOutcome
from .wire import Wire


class PermissionSubject(Wire):
    """What a remembered answer is compared with: the tool of a call and what the call touches."""

    tool: str
    server: str | None = None
    """The tool's MCP server."""
    commands: list[list[str]] = Field(default_factory=list)
    """The patterns of the commands of a command line that need permission; empty where one of them has none."""
    is_command: bool = False
    hosts: list[str] = Field(default_factory=list)


def grants_of(subject: PermissionSubject, outcome: PermissionOutcome) -> list[str]:
    """Returns what the outcome grants, to be stored; empty where the outcome does not apply to this subject."""
    match outcome:
        case PermissionOutcome.PROCEED_ALWAYS:
            if subject.is_command:
                return [*dict.fromkeys(map(_command, subject.commands))]
            if subject.hosts:
                return [_grant("host", subject.tool, host) for host in subject.hosts]
            return [_grant("tool", subject.tool)]
        case PermissionOutcome.PROCEED_ALWAYS_TOOL:
            return [_grant("tool", subject.tool)]
        case PermissionOutcome.PROCEED_ALWAYS_SERVER:
            return [_grant("server", subject.server)] if subject.server else []
        case _:
            return []


def remembered(subject: PermissionSubject) -> dict[str, list[str]]:
    """Returns the outcomes that can be remembered for the subject, and in words what each of them permits."""
    found = {outcome.value: [*map(in_words, grants_of(subject, outcome))] for outcome in PermissionOutcome}
    return {outcome: words for outcome, words in found.items() if words}


def covered_by(subject: PermissionSubject, grants: Collection[str]) -> list[str]:
    """Returns the grants that permit the call: that of its tool or server, or those of all its commands or hosts."""
    for one in (_grant("tool", subject.tool), _grant("server", subject.server)):
        if one in grants:
            return [one]
    needed = [*map(_command, subject.commands)]
    if not subject.is_command:
        needed = [_grant("host", subject.tool, host) for host in subject.hosts]
    return needed if all(each in grants for each in needed) else []


def in_words(grant: str) -> str:
    kind, *names = _read(grant)
    match kind:
        case "command":
            return " ".join(names)
        case "host":
            return f"{names[0]} at {names[1]}"
        case "server":
            return f"every tool of {names[0]}"
        case _:
            return f"every call of {names[0]}"


def _command(pattern: Sequence[str]) -> str:
    return _grant("command", *pattern)


def _grant(kind: str, *names: str | None) -> str:
    return json.dumps([kind, *names], ensure_ascii=False)


def _read(grant: str) -> list[str]:
    return json.loads(grant)
