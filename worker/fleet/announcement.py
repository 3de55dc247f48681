"""Lists, at a worker's start, the tools that its sources offer, so that they can be announced."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from shared.catalog import ToolCard
from shared.log import log
from shared.masking import SecretMask
from shared.settings import Settings
from worker.sandbox.base import NoSandbox
from worker.sandbox.bubblewrap import Bubblewrap
from worker.sandbox.environment import MOUNT, owner
from worker.schemas.pool import ValidatorPool
from worker.toolkit.registry import tool_cards
from worker.toolkit.sources import Source, ToolSourceContext
from worker.tools.base import AnyTool
from worker.workspace.files import Files


async def announce(
    settings: Settings, sources: Sequence[Source], sandbox_problem: str | None, validators: ValidatorPool
) -> list[ToolCard]:
    """Opens every source over an empty workspace and closes it again; returns the tools they offered."""
    found: list[AnyTool] = []
    async with AsyncExitStack() as opened:
        # Below the workspaces, where the janitor removes it if this worker is killed meanwhile.
        workspaces = settings.workspaces
        workspaces.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="survey-", dir=workspaces)))
        if whose := owner():
            os.chown(folder, *whose)
        sandbox = NoSandbox(sandbox_problem) if sandbox_problem else opened.enter_context(Bubblewrap(folder))
        files = opened.enter_context(Files(folder, MOUNT, owner()))
        mask = SecretMask(settings.secrets)
        place = ToolSourceContext("", None, files, sandbox, _warn, mask.add, validators=validators)
        for source in sources:
            found += await opened.enter_async_context(source.open(place))
        announced = await asyncio.to_thread(tool_cards, found)
        return [ToolCard.model_validate_json(mask.json(card.to_json())) for card in announced]


def _warn(message: str) -> None:
    log.warning("%s", message)
