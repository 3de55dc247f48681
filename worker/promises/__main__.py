"""`python -m deputize.worker.promises [DIR]`: which promises hold on this machine, as one JSON object.

It is started as a worker is. It ends when its input does: what it has made is gone by then.
"""

from __future__ import annotations

from ...shared import startup  # noqa: F401  # pyright: ignore[reportUnusedImport] - cheaper imports after it

# isort: split

import asyncio
import json
import os
import sys
from collections.abc import Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...shared.errors import DeputizeError
from ...shared.libc import is_memory_private, keep_memory_private
from ...shared.settings import Settings, environment
from ..sandbox.bubblewrap import Bubblewrap
from ..sandbox.canaries import Canaries
from ..sandbox.project_tools import check_shown
from .commands import Found, try_commands
from .project import find_project


async def find(settings: Settings, canaries: Canaries, directory: Path | None = None) -> dict[str, Any]:
    """Tries all promises at the same time. ``directory`` is a project whose tools commands are to find."""
    found = Found(more={"private": is_memory_private()} | ({"project": None} if directory else {}))
    async with asyncio.TaskGroup() as together:
        together.create_task(_try_calls(settings, canaries, found))
        together.create_task(_try_commands(settings, canaries, found, directory))
    return asdict(found)


async def _try_commands(settings: Settings, canaries: Canaries, found: Found, directory: Path | None) -> None:
    try:
        check_shown(settings)
    except DeputizeError as error:
        found.more["error"] = str(error)
        return
    switched_off = None if settings.sandbox.enabled else "switched off by DEPUTIZE_SANDBOX"
    found.more["sandbox"] = reason = switched_off or await Bubblewrap.selftest(canaries.folder)
    if reason:
        return
    async with asyncio.TaskGroup() as together:
        together.create_task(try_commands(settings, canaries, found))
        if directory:
            together.create_task(_find_project(settings, directory, canaries, found))


async def _find_project(settings: Settings, directory: Path, canaries: Canaries, found: Found) -> None:
    try:
        found.more["project"] = await find_project(settings, directory, canaries.workspace("project"))
    except DeputizeError as error:
        found.more["error"] = str(error)


async def _try_calls(settings: Settings, canaries: Canaries, found: Found) -> None:
    environ = {name: text for name, text in environment().items() if name != "DEPUTIZE_CONFIG"}
    await asyncio.to_thread(_import_calls)
    from .calls import try_calls

    await try_calls(settings, canaries, found, environ)


def _import_calls() -> None:
    """Imports in a thread what takes long, while commands run."""
    from . import calls  # noqa: F401  # pyright: ignore[reportUnusedImport]


def _place(settings: Settings) -> Path | None:
    """Returns where the worker's own files lie; None if nothing can be written there."""
    places = (settings.workspaces, settings.home)
    return next((path for path in places if path.is_dir() and os.access(path, os.W_OK | os.X_OK)), None)


async def _while_input_is_open(work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Cancels the work when the input ends: the process that asked has gone."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    loop.add_reader(0, task.cancel)
    try:
        return await task
    finally:
        loop.remove_reader(0)


def main() -> int:
    """``error`` is what has to be corrected before anything can be tried."""
    keep_memory_private()
    directory = Path(sys.argv[1]) if sys.argv[1:] else None
    try:
        settings = Settings.load()
        with Canaries(_place(settings)) as canaries:  # removed when no thread uses them any more
            found = asyncio.run(_while_input_is_open(find(settings, canaries, directory)))
    except DeputizeError as error:
        found = {"more": {"error": str(error)}}
    except asyncio.CancelledError:
        return 1
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
