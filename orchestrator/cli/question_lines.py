"""A permission request in lines: what is to be done, why a person is asked, and what lasting answers would permit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import formatting

if TYPE_CHECKING:
    from ...shared.permission import PermissionQuestion


def short_ids(ids: Sequence[str]) -> list[str]:
    """Returns the ends of the ids of requests by which none is mistaken for another one."""
    length = formatting.SHORT_PERMISSION_ID
    while len({id[-length:] for id in ids}) < len({*ids}):
        length += 1
    return [id[-length:] for id in ids]


def in_task(asked: PermissionQuestion, title: str) -> str:
    """Returns `write CHANGELOG.md in "Write the changelog"`: the call, and the task of the delegation that asks."""
    return f'{asked.step.title} in "{title}"'


def question_lines(asked: PermissionQuestion, title: str) -> list[str]:
    """Returns the lines of a request; ``title``: of the delegation that asks."""
    (short,) = short_ids([asked.permission_id])
    lines = [f"permission {short}: {in_task(asked, title)}"]
    if len(asked.path) > 1:
        lines.append(f"  asked by {formatting.short_id(asked.path[-1])}, a child of {asked.path[-2]}")
    if asked.reason:
        lines.append(f"  because {asked.reason}" + (f" (rule {asked.rule})" if asked.rule else ""))
    # Of answers that permit the same only the first one.
    lasting = {", ".join(grants): outcome for outcome, grants in reversed(asked.remembers.items())}
    names = {outcome: outcome[len("proceed_") :].replace("always_", "always, this ") for outcome in lasting.values()}
    lines += [f"  {names[outcome]}: {grants}" for grants, outcome in reversed(lasting.items())]
    return lines + [f"  | {line}" for line in _text(asked)]


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
            more = {name: value for name, value in details.arguments.items() if value not in details.urls}
            return [*(url for url in details.urls if url not in asked.step.title), *_arguments(more)]


def _arguments(arguments: dict[str, object]) -> list[str]:
    return json.dumps(arguments, ensure_ascii=False, indent=1).splitlines() if arguments else []
