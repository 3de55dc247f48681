"""The only Celery task: takes an id, stores a result. The record holds everything else."""

from __future__ import annotations

import asyncio
import gc
from asyncio import run_coroutine_threadsafe
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any

from celery import Celery

from ..shared.connection import REDIS_ERRORS, connect, shielded
from ..shared.errors import DeputizeError, Misconfigured, NotFound
from ..shared.log import log
from ..shared.queue import TASK, send_tickets
from ..shared.runs.store import RunStore, pause_unfinished
from ..shared.settings import SandboxSettings, Settings
from ..shared.tokens import count
from ..shared.wording import MARKS, ending
from .celery_pool.pool import AsyncPool, AsyncTask, set_service
from .celery_pool.process import ProgressEvents, revoke_means_cancel
from .fleet.lease import StopSignal
from .models import open_model
from .sandbox.bounds import WorkerBounds
from .sandbox.bubblewrap import Bubblewrap
from .sandbox.project_tools import check_shown
from .standby.process import Standby
from .threads import run_in_thread
from .workspace.workspace import check_writable

if TYPE_CHECKING:
    from ..shared.delegation import ToolAgentResult
    from .policy import Rule
    from .services import Services
    from .toolkit.offer import RunOffer
    from .tools.base import AnyTool
    from .web.dial import Network


def register(
    app: Celery, settings: Settings, redis_url: str, name: str, tools: Sequence[AnyTool] | None, network: Network | None
) -> None:
    """Registers ``deputize.run`` with the app, and the services that its runs share with the pool."""
    opened: list[Services] = []

    @asynccontextmanager
    async def service(pool: AsyncPool) -> AsyncGenerator[None]:
        async with _prepared(settings, redis_url) as bounds, Standby(redis_url, settings.lease_seconds) as standby:
            offer, rules = await _offer(settings, tools, bounds, network)
            from .services import open_services

            async with open_services(
                redis_url,
                offer,
                name=name,
                concurrency=pool.limit,
                rules=rules,
                send=partial(send_tickets, app),
                progress=ProgressEvents(app, name),
                standby=standby,
                waiting=pool.waiting,
            ) as services:
                opened.append(services)
                services.status.drain, services.status.draining = pool.drain, lambda: pool.draining
                revoke_means_cancel(lambda ids: run_coroutine_threadsafe(_cancel(services.store, ids), pool.loop))
                yield
                opened.clear()

    async def run(self: AsyncTask, id: str) -> str | None:
        try:
            result = await carry_out(opened[0], id)
        finally:
            freeze_gc()
        return of_task(result) if result else None

    app.task(run, name=TASK, base=DelegationTask, bind=True, throws=(Unsuccessful,))
    set_service(app, service)


def of_task(result: ToolAgentResult) -> str:
    """Returns what Flower shows of a result. Raises ``Unsuccessful`` unless nothing is against it."""
    shown = f"{MARKS[result.mark]} {ending(result)}"
    if result.mark != "ok":
        raise Unsuccessful(shown)
    return shown


class Unsuccessful(Exception):
    """Reports to Celery and Flower that a delegation is not proven, failed or was cancelled, and why."""


class DelegationTask(AsyncTask):
    """The base of the task: an unsuccessful delegation is not an error of this code, so it logs no traceback."""

    abstract = True

    def on_failure(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        if isinstance(exc, Unsuccessful):
            einfo.traceback = ""


async def _offer(
    settings: Settings, tools: Sequence[AnyTool] | None, bounds: WorkerBounds, network: Network | None
) -> tuple[RunOffer, Sequence[Rule]]:
    """Returns what runs may have, and the rules of the policy's files."""
    # The standby is there: it alone ends a sandbox that is being set up when the worker is killed. The self-test mostly
    # waits for its commands; meanwhile a thread imports what only runs need.
    problem, _ = await asyncio.gather(_sandbox_problem(settings), run_in_thread(_warm_up, settings))
    from .services import checked_rules, offer_of
    from .tools.builtin import BUILTIN

    offered = BUILTIN if tools is None else tools
    offer = offer_of(settings, sandbox_problem=problem, tools=offered, bounds=bounds, network=network)
    return offer, await run_in_thread(checked_rules, settings, offered)


async def _sandbox_problem(settings: Settings) -> str | None:
    """Returns why commands cannot run here, or None. Raises ``Misconfigured`` where the sandbox is required."""
    enabled = settings.sandbox.enabled
    check_shown(settings)
    problem = await Bubblewrap.selftest(settings.workspaces) if enabled else "switched off by DEPUTIZE_SANDBOX"
    if problem and enabled == "required":
        raise Misconfigured(f"DEPUTIZE_SANDBOX is 'required', and the sandbox does not work here: {problem}")
    if problem:
        log.warning("tools that need the sandbox are denied here: %s", problem)
    return problem


async def _cancel(store: RunStore, ids: Sequence[str]) -> None:
    for id in ids:
        try:
            await shielded(store.cancel(id))
        except (NotFound, *REDIS_ERRORS) as error:
            log.warning("%s was revoked and is not cancelled: %s", id[:100], error)


@asynccontextmanager
async def _prepared(
    settings: Settings, redis_url: str, bounds_of: Callable[[SandboxSettings], WorkerBounds] = WorkerBounds.of_process
) -> AsyncGenerator[WorkerBounds]:
    """Opens the bounds of all runs: what this process starts later is in its control group from the begin."""
    await run_in_thread(check_writable, settings.workspaces)
    if settings.stack_since is not None:
        async with connect(redis_url) as redis:
            await pause_unfinished(redis, settings.stack_since, temporary=settings.temporary)
    bounds = await run_in_thread(bounds_of, settings.sandbox)
    try:
        yield bounds
    finally:
        await run_in_thread(bounds.close)


def _warm_up(settings: Settings) -> None:
    """Imports what only runs need, and what Celery imports after the pool's start, and opens the model."""
    import_module("celery.worker.consumer")
    import_module(".run", __package__)
    with suppress(DeputizeError, ImportError, OSError):  # the run that needs it reports the error
        open_model(settings.model, settings)


@cache
def _load_encoding() -> Thread:
    """Begins to load the encoding of tokens, once per process, with its first run.

    It takes half of the memory of a worker, so an idle one is without it. What counts tokens waits for it in a thread:
    the loop, which loading would hold up for a second, does not.
    """
    thread = Thread(target=count, args=("loads the encoding",), daemon=True)
    thread.start()
    return thread


@cache
def freeze_gc() -> None:
    """Freezes the garbage collector's objects, once per process, after the first run has loaded all lazy imports.

    Scanning them again with every collection, and a thousand young runs, would block the loop for up to a second.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


async def carry_out(services: Services, id: str) -> ToolAgentResult | None:
    """Claims a delegation and runs it; a ticket for one that is held, finished or gone is dropped.

    Returns the result, or None for a dropped ticket. Cancelled (the worker shuts down) it hands the run
    back, so that another worker takes it at once instead of waiting for the lease to lapse.
    """
    from .run import Run

    claim = await services.claim(id)
    if claim is None:
        return None
    if not services.settings.temporary:  # the runs of a command with a stack of its own rarely count
        _load_encoding()
    stop: StopSignal | None = None
    try:
        async with services.leases.held(claim) as stop:
            result = await Run(claim, services, stop).execute()
    except asyncio.CancelledError:
        await asyncio.wait({services.release(claim, stop.used if stop else {})}, timeout=2)
        raise
    finally:
        services.progress.drop(id)
    return result
