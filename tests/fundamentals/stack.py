"""States of the shared stack and of its runs, and how to wait for them."""

from __future__ import annotations

from contextlib import aclosing

from deputize import Orchestrator
from deputize.shared.events import Event
from deputize.shared.settings import Settings
from deputize.worker.linux.tree import command_line
from tests.leaks import descendants, kept
from tests.running import call, say, script
from tests.waiting import until


async def until_whole(settings: Settings) -> None:
    """Waits until every process that stays has started. From then on a further one that stays is a leak."""
    async with Orchestrator(settings) as orchestrator:
        model = script(settings.home.parent, [call("bash", command="true")], [say("Done.")])
        await orchestrator.delegate("The first run of a worker starts what later ones share.", model=model)
    kept.update(descendants())


def keep_validators() -> None:
    """A worker's processes that validate against JSON Schemas start when they are first needed, and stay."""
    kept.update(pid for pid in descendants() if "worker/schemas/validation.py" in command_line(pid))


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
