"""States of the shared stack and of its runs, and how to wait for them."""

from __future__ import annotations

from contextlib import aclosing

from deputize import Orchestrator
from deputize.shared.events import Event
from deputize.shared.settings import Settings
from tests.waiting import until


async def until_event(orchestrator: Orchestrator, id: str, kind: type[Event]) -> None:
    """Follows a delegation until there is an event of that type, one that is kept."""
    async with aclosing(orchestrator.follow(id)) as events:
        async for envelope in events:
            if isinstance(envelope.event, kind):
                return


async def until_file(settings: Settings, id: str, name: str, text: str = "") -> None:
    """Waits until a run's command has made that file, with that text in it: a shell makes it before it writes."""
    file = settings.workspaces / id / "files" / name
    await until(lambda: file.exists() and text in file.read_text())


def make_file(settings: Settings, id: str, name: str) -> None:
    """Makes a file for which a run's command waits."""
    (settings.workspaces / id / "files" / name).touch()
