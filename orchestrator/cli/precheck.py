"""Notes and warnings before work is submitted, because work costs money."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.cli import formatting as words
from orchestrator.cli.connect import Service
from orchestrator.cli.watch import unfinished
from shared.errors import DeputizeError

if TYPE_CHECKING:
    from shared.delegation import DelegationRequest
    from shared.settings import Settings

SHOWN = 3


def asks_a_model(requests: Sequence[DelegationRequest], settings: Settings) -> bool:
    """Returns whether any of them needs a model instead of a script."""
    return any(not (request.model or settings.model).startswith("scripted") for request in requests)


async def note_before_work(
    service: Service, requests: Sequence[DelegationRequest], note: Callable[[str], None]
) -> None:
    """Notes unfinished delegations that will continue, and default tools that are unavailable."""
    with suppress(DeputizeError):  # submitting the work reports the error
        if service.own:
            await _note_resumed(service, note)
        if any(request.tools is None for request in requests):
            await _note_missing_tools(service, note)


async def _note_resumed(service: Service, note: Callable[[str], None]) -> None:
    before = [delegation.id async for delegation in unfinished(service.client)]
    if before:
        names = ", ".join(before[:SHOWN]) + (", …" if len(before) > SHOWN else "")
        note(f"{words.count(len(before), 'delegation')} from before goes on, too: {names}; `deputize cancel` ends it")


async def _note_missing_tools(service: Service, note: Callable[[str], None]) -> None:
    workers = await service.client.workers()
    if workers and all(worker.sandbox is not None for worker in workers):
        note(
            f"warning: commands and changes of files will be refused, because the sandbox does not work: "
            f"{workers[0].sandbox}; `deputize doctor` shows the remedy"
        )
