"""The one Celery task: an id in, a result out. The record says everything else."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache, partial

from celery import Celery

from shared.errors import Misconfigured
from shared.log import log
from shared.queue import TASK, send_tickets
from shared.settings import Settings
from worker.models import open_model
from worker.pool import AsyncPool, AsyncTask, add_service
from worker.progress import ProgressEvents
from worker.run import Run
from worker.sandbox.bubblewrap import Bubblewrap
from worker.services import Services, open_services
from worker.threads import to_the_end
from worker.tools import BUILTIN
from worker.tools.base import AnyTool
from worker.workspace import check_writable


def register(app: Celery, settings: Settings, redis_url: str, name: str, tools: Sequence[AnyTool] = BUILTIN) -> None:
    """Makes ``deputize.run`` known to the app, and has the pool open what its runs share."""
    opened: list[Services] = []

    @asynccontextmanager
    async def service(pool: AsyncPool) -> AsyncGenerator[None]:
        await to_the_end(check_writable, settings.workspaces)
        await to_the_end(_warm_up, settings)
        problem = (
            await Bubblewrap.selftest(settings.workspaces) if settings.sandbox else "switched off by DEPUTIZE_SANDBOX"
        )
        if problem and settings.sandbox == "required":
            raise Misconfigured(f"DEPUTIZE_SANDBOX is 'required', and the sandbox does not work here: {problem}")
        if problem:
            log.warning("tools that need the sandbox are refused here: %s", problem)
        async with open_services(
            settings,
            redis_url,
            name=name,
            concurrency=pool.limit,
            send=partial(send_tickets, app),
            progress=ProgressEvents(app, name),
            sandbox_problem=problem,
            tools=tools,
            waiting=pool.waiting,
        ) as services:
            opened.append(services)
            yield
            opened.clear()

    async def run(self: AsyncTask, id: str) -> str | None:
        try:
            return await carry_out(opened[0], id)
        finally:
            spare_the_collector()

    app.task(run, name=TASK, base=AsyncTask, bind=True)
    add_service(app, service)


def _warm_up(settings: Settings) -> None:
    """Imports the model's client, which takes seconds, before the first run waits for it."""
    with suppress(Exception):  # what cannot be opened is said by the run that needs it
        open_model(settings.model, settings)


@cache
def spare_the_collector() -> None:
    """Once a process, after its first run, when all that is loaded late is loaded and stays.

    Looking through it again and again, and through a thousand young runs, would stop the loop for up to a second.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


async def carry_out(services: Services, id: str) -> str | None:
    """Claims a delegation and runs it; a ticket for one that is held, finished or gone is dropped.

    Gives the termination reason, or None for a dropped ticket. Cancelled (the worker shuts down) it hands the run
    back, so that another worker takes it at once instead of waiting for the lease to lapse.
    """
    claim = await services.claim(id)
    if claim is None:
        return None
    try:
        async with services.leases.held(claim) as stop:
            result = await Run(claim, services, stop).carry_out()
    except asyncio.CancelledError:
        await asyncio.wait({services.release(claim)}, timeout=2)
        raise
    finally:
        services.progress.drop(id)
    return result.termination_reason.value if result else None
