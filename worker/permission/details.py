"""What a person is shown about a call, and what a remembered answer about it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...shared.grants import PermissionSubject
from ...shared.permission import (
    CommandDetails,
    EditDetails,
    ExecuteDetails,
    InfoDetails,
    McpDetails,
    PermissionDetails,
)
from ..policy import PolicyCall
from ..policy.shell import Classified, SubCommand
from ..tools.base import Kind
from .patterns import command_patterns


def details_of(call: PolicyCall, arguments: Mapping[str, Any], diff: str = "") -> PermissionDetails:
    """Returns the details of a call, by what it does. Its command line is classified already, by the rule that asks."""
    tool, touches = call.tool, call.touches
    if touches.command is not None:
        return ExecuteDetails(command=touches.command, **_parts(touches.command, call.classified))
    if tool.origin.server is not None:
        return McpDetails(server=tool.origin.server, tool=tool.origin.remote or tool.name, arguments=dict(arguments))
    if tool.kind in (Kind.EDIT, Kind.DELETE, Kind.MOVE):
        return EditDetails(paths=list(touches.paths), diff=diff)
    urls = [text for text in arguments.values() if isinstance(text, str) and text.startswith(("http://", "https://"))]
    return InfoDetails(urls=urls, arguments=dict(arguments))


def _parts(text: str, line: Classified | None) -> dict[str, Any]:
    if line is None:
        return {}
    commands = [
        CommandDetails(command=" ".join(each.words), decision=each.decision.value, reason=each.reason)
        for each in sorted(line.commands, key=lambda each: _position(text, each))
    ]
    return {"commands": commands, "effects": list(line.effects)}


def _position(text: str, command: SubCommand) -> int:
    """Returns where the command begins in the line; one that is spelled otherwise there comes last."""
    found = text.find(" ".join(command.words))
    return len(text) if found < 0 else found


def subject_of(call: PolicyCall, lacking: tuple[SubCommand, ...]) -> PermissionSubject:
    """Returns the subject of a call; ``lacking`` are the commands of its line that no rule allows."""
    line = call.classified
    return PermissionSubject(
        tool=call.tool.name,
        server=call.tool.origin.server,
        commands=command_patterns(replace(line, commands=lacking)) if line else [],
        is_command=line is not None,
        hosts=list(call.touches.hosts),
    )
