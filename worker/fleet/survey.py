"""One look, at a worker's start, at what its sources of tools offer, so that the fleet can announce it."""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from shared.catalog import ToolCard
from shared.connection import REDIS_ERRORS
from shared.errors import DeputizeError
from shared.log import log
from shared.masking import SecretMask
from worker.sandbox.base import NoSandbox
from worker.sandbox.bubblewrap import Bubblewrap
from worker.sandbox.environment import MOUNT, owner
from worker.toolkit.registry import cards
from worker.toolkit.sources import Place
from worker.tools.base import AnyTool
from worker.workspace.files import Files

if TYPE_CHECKING:
    from worker.services import Services


async def survey(services: Services) -> None:
    """Opens every source over an empty workspace, notes its tools in ``services.announced``, closes it again.

    Says in the log what there is. Whatever fails is a warning there, and no run's matter.
    """
    try:
        services.announced += await _look(services)
        await services.announce()
    except (*REDIS_ERRORS, DeputizeError, OSError, ValueError, RecursionError) as error:
        log.warning("the further tools of this worker cannot be announced", exc_info=error)
    log.info("workspaces lie below %s", services.settings.workspaces)


def _warn(message: str) -> None:
    log.warning("%s", message)


async def _look(services: Services) -> list[ToolCard]:
    found: list[AnyTool] = []
    async with AsyncExitStack() as opened:
        # Among the workspaces, where the janitor finds it if this worker is killed meanwhile.
        workspaces = services.settings.workspaces
        workspaces.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="survey-", dir=workspaces)))
        if whose := owner():
            os.chown(folder, *whose)
        problem = services.sandbox_problem
        sandbox = NoSandbox(problem) if problem else opened.enter_context(Bubblewrap(folder))
        files = opened.enter_context(Files(folder, MOUNT, owner()))
        mask = SecretMask(services.settings.secrets)
        place = Place("", None, files, sandbox, _warn, mask.add, validators=services.validators)
        for source in services.sources:
            found += await opened.enter_async_context(source.open(place))
        announced = await asyncio.to_thread(cards, found)
        return [ToolCard.model_validate_json(mask.json(card.to_json())) for card in announced]
