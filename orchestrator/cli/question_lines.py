"""A permission request in lines: what is to be done, why a person is asked, and what lasting answers would permit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deputize.orchestrator.cli import formatting

if TYPE_CHECKING:
    from deputize.shared.permission import PermissionQuestion

SHOWN_LINES = 30


def short_id(id: str) -> str:
    return id[-formatting.SHORT_PERMISSION_ID :]


def question_lines(asked: PermissionQuestion, most: int | None = SHOWN_LINES) -> list[str]:
    """Returns the lines of a request; ``most``: of a long command or diff."""
    lines = [f"permission {short_id(asked.permission_id)}: {asked.step.title}"]
    if len(asked.path) > 1:
        lines.append(f"  asked by {formatting.short_id(asked.path[-1])}, a child of {asked.path[-2]}")
    if asked.reason:
        lines.append(f"  because {asked.reason}" + (f" (rule {asked.rule})" if asked.rule else ""))
    text = _text(asked)
    lines += [f"  | {line}" for line in text[:most]]
    if most is not None and len(text) > most:
        lines.append(f"  … {len(text) - most} more lines: deputize permissions {short_id(asked.permission_id)}")
    return lines + [f"  {_name(outcome)}: {', '.join(grants)}" for outcome, grants in asked.remembers.items()]


def _text(asked: PermissionQuestion) -> Sequence[str]:
    details = asked.details
    match details.type:
        case "execute":
            asking = [each for each in details.commands if each.decision != "allow"]
            parts = [f"# {each.reason}" for each in asking] + [f"# it {effect}" for effect in details.effects]
            return [*details.command.splitlines(), *dict.fromkeys(parts)]
        case "edit":
            return details.diff.splitlines() or details.paths
        case "mcp":
            return [f"{details.server}: {details.tool}", *_arguments(details.arguments)]
        case "info":
            return [*details.urls, *_arguments(details.arguments)]


def _arguments(arguments: dict[str, object]) -> list[str]:
    return json.dumps(arguments, ensure_ascii=False, indent=1).splitlines() if arguments else []


def _name(outcome: str) -> str:
    names = {
        "proceed_always": "always",
        "proceed_always_tool": "always, this tool",
        "proceed_always_server": "always, this server",
    }
    return names.get(outcome, outcome)
