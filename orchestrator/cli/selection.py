"""Which delegations a command is about: those of some ids, or the unfinished ones with a session or labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from . import completion
from .connect import full_id, unfinished
from .values import LABEL

if TYPE_CHECKING:
    from ...shared.delegation import Delegation
    from ..client import Client

Command = TypeVar("Command", bound=Callable[..., Any])
MOST_LISTS = 10
"""How often the unfinished ones are listed, at most, until a list has nothing new."""

_LABEL = click.option(
    "--label",
    "labels",
    type=LABEL,
    multiple=True,
    metavar="KEY:VALUE",
    shell_complete=completion.labels,
    help="Only those with it; all must match.",
)
_SESSION = click.option(
    "--session", metavar="ID", shell_complete=completion.sessions, help="Only those of this session of the parent."
)


def by_label_and_session(command: Command) -> Command:
    """Adds the options ``--label`` and ``--session``, as the parameters ``labels`` and ``session``."""
    return _LABEL(_SESSION(command))


def filters(labels: Sequence[str], session: str | None) -> dict[str, Any]:
    """Returns the options as filters of a list; none of them is in the dictionary where it was not given."""
    given = {"labels": dict(label.split(":", 1) for label in labels), "session": session}
    return {name: value for name, value in given.items() if value}


def check_one_way(ids: Sequence[str], chosen: Mapping[str, Any], *, every: bool = False) -> None:
    """Raises UsageError unless the delegations are named in exactly one way."""
    if bool(ids) + bool(chosen) + every != 1:
        raise click.UsageError("give the ids of delegations, or --label and --session, or --all")


async def chosen_ids(
    client: Client,
    ids: Sequence[str],
    chosen: Mapping[str, Any],
    matches: Callable[[Delegation], bool] = lambda _: True,
) -> list[str]:
    """Returns the whole ids that were given; if none was, those of the unfinished ones that are chosen and match."""
    if ids:
        return [await full_id(client, id) for id in ids]
    found: dict[str, None] = {}
    # A list is read in pages, the newest first: what is accepted meanwhile is only in the next list.
    for _ in range(MOST_LISTS):
        before = len(found)
        found |= {each.id: None async for each in unfinished(client, **chosen) if matches(each)}
        if len(found) == before:
            break
    return [*found]


def shown(chosen: Mapping[str, Any]) -> str:
    """Returns the options by which delegations were chosen, for a message."""
    labels = [f"--label {name}:{value}" for name, value in chosen.get("labels", {}).items()]
    return " ".join([*labels, *([f"--session {chosen['session']}"] if "session" in chosen else [])])
