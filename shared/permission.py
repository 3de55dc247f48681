"""Permissions: the question to a person about one call of a run, and the answer."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from .delegation import Step
from .text import did_you_mean
from .wire import Data, Request, Timestamp, Wire


class PermissionOutcome(StrEnum):
    """A person's decision about a call."""

    PROCEED_ONCE = "proceed_once"
    PROCEED_ALWAYS = "proceed_always"
    """Also for similar calls of the run, its parents and its children: same commands, same hosts, or the same tool."""
    PROCEED_ALWAYS_TOOL = "proceed_always_tool"
    """Also for every other call of the same tool."""
    PROCEED_ALWAYS_SERVER = "proceed_always_server"
    """Also for every other call of a tool of the same MCP server."""
    MODIFY = "modify"
    """With other arguments, which are validated and judged again."""
    CANCEL = "cancel"

    @property
    def is_remembered(self) -> bool:
        return self.startswith("proceed_always")


ALIASES: Mapping[str, PermissionOutcome] = {
    **dict.fromkeys(("approve", "allow", "y"), PermissionOutcome.PROCEED_ONCE),
    **dict.fromkeys(("deny", "reject", "n"), PermissionOutcome.CANCEL),
    "modify_with_editor": PermissionOutcome.MODIFY,
}


def parse_outcome(text: str) -> PermissionOutcome:
    """Returns the outcome of that name or alias. Raises ValueError."""
    known = {**{outcome.value: outcome for outcome in PermissionOutcome}, **ALIASES}
    if text not in known:
        near = did_you_mean(text[:64], list(known), 1, show=repr)
        raise ValueError(f"{text[:64]!r} is not an outcome; {near or 'there are ' + ', '.join(known)}")
    return known[text]


Outcome = Annotated[
    PermissionOutcome, BeforeValidator(lambda given: parse_outcome(given) if isinstance(given, str) else given)
]
"""An outcome, which callers may write as an alias."""


class EditDetails(Wire):
    """A change of files."""

    type: Literal["edit"] = "edit"
    paths: list[str] = Field(default_factory=list)
    """The files that the call changes, relative to the workspace."""
    diff: str = ""
    """The change as a unified diff, where it can be computed before the call."""


class CommandDetails(Wire):
    """One command of a line."""

    command: str
    """The command with its arguments."""
    decision: Literal["allow", "ask", "deny"]
    """``allow``: it only reads; ``ask``: it may change something."""
    reason: str
    """Why the policy decides so."""


class ExecuteDetails(Wire):
    """A command line."""

    type: Literal["execute"] = "execute"
    command: str
    """The whole command line."""
    commands: list[CommandDetails] = Field(default_factory=list)
    """The commands in it, also those that another one starts."""
    effects: list[str] = Field(default_factory=list)
    """Its further effects, such as writing a file."""


class McpDetails(Wire):
    """A call of an MCP server's tool."""

    type: Literal["mcp"] = "mcp"
    server: str
    """The MCP server."""
    tool: str
    """The tool's name on that server."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """The arguments of the call."""


class InfoDetails(Wire):
    """Any other call."""

    type: Literal["info"] = "info"
    urls: list[str] = Field(default_factory=list)
    """The URLs that the call reads."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """The arguments of the call."""


PermissionDetails = Annotated[
    EditDetails | ExecuteDetails | McpDetails | InfoDetails,
    Field(discriminator="type"),
]


class PermissionQuestion(Wire):
    """A question to a person about a call."""

    permission_id: str
    """The id under which it is answered."""
    path: list[str] = Field(default_factory=list)
    """The ids of the delegations from the root of the run tree to the one that asks."""
    step: Step
    """The call."""
    details: PermissionDetails
    """The effect of the call."""
    reason: str = ""
    """Why the policy asks."""
    rule: str = ""
    """The rule that asks; one of a file with file and line."""
    remembers: dict[str, list[str]] = Field(default_factory=dict)
    """What each outcome that is remembered would permit from then on; one that is missing is refused."""
    created_at: Timestamp
    """When the call began to wait."""
    expires_at: Timestamp
    """When the call is denied if there is no answer."""


class PermissionRequest(PermissionQuestion):
    """A question that waits for its answer."""

    delegation_id: str
    """The delegation that asks."""


class PermissionAnswer(Wire):
    """The answer to a permission request."""

    outcome: PermissionOutcome
    reason: str | None = None
    arguments: dict[str, Any] | None = None
    """For ``modify``: the arguments of the call instead of the model's."""
    by: str | None = None
    """Who answered: the name of a token; null where the time was over, and where no token is asked for."""
    at: Timestamp


class PermissionReply(Request):
    """A person's answer."""

    outcome: Outcome
    """Also ``approve``, ``allow``, ``y`` for ``proceed_once`` and ``deny``, ``reject``, ``n`` for ``cancel``."""
    reason: str | None = Field(default=None, max_length=2000)
    """For the model, where the answer is ``cancel``."""
    arguments: dict[str, Data] | None = None
    """For ``modify``: all arguments of the call, changed."""


class PermissionSubject(Wire):
    """The subject of a remembered answer: the tool of a call, and the things that the call touches."""

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
                return [*dict.fromkeys(_grant("command", *pattern) for pattern in subject.commands)]
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
    if subject.is_command:
        needed = [_grant("command", *pattern) for pattern in subject.commands]
    else:
        needed = [_grant("host", subject.tool, host) for host in subject.hosts]
    return needed if all(each in grants for each in needed) else []


def in_words(grant: str) -> str:
    kind, *names = json.loads(grant)
    match kind:
        case "command":
            return " ".join(names)
        case "host":
            return f"{names[0]} at {names[1]}"
        case "server":
            return f"every tool of {names[0]}"
        case _:
            return f"every call of {names[0]}"


def _grant(kind: str, *names: str | None) -> str:
    return json.dumps([kind, *names], ensure_ascii=False)
