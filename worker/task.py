"""The only Celery task: takes an id, stores a result. The record holds everything else."""

from __future__ import annotations

import asyncio
import faulthandler
import multiprocessing
import os
import pickle
import signal
from asyncio import run_coroutine_threadsafe
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from multiprocessing.reduction import ForkingPickler
from threading import Thread
from typing import TYPE_CHECKING, Any

import uvloop
from celery import Celery

from ..shared.connection import REDIS_ERRORS, connect, shielded
from ..shared.errors import DeputizeError, GoesAlone, Misconfigured, NotFound
from ..shared.log import log, set_up
from ..shared.own_process import keep_memory_private, return_large_memory, send_on_death_of_parent
from ..shared.queue import QUEUE, TASK, create_app, send_tickets
from ..shared.runs.store import START_CLAIMS, RunStore, pause_unfinished
from ..shared.settings import SandboxSettings, Settings
from ..shared.tokens import count
from .celery_pool.garbage import RunGarbage
from .celery_pool.one_run import received, takes_writes
from .celery_pool.pool import CLEANUP_SECONDS, AsyncPool, AsyncTask, set_service
from .celery_pool.process import ProgressEvents, revoke_means_cancel
from .celery_pool.task_end import DelegationTask, Unsuccessful, end_of_task
from .contracts import StopSignal
from .models import open_model
from .sandbox.bounds import WorkerBounds
from .sandbox.bubblewrap import Bubblewrap
from .sandbox.project_tools import check_shown
from .standby.process import Standby
from .threads import run_in_thread, share_threads
from .workspace.workspace import check_writable

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from ..shared.delegation import ToolAgentResult
    from ..shared.runs.record import Claim
    from .attempts import Attempt
    from .core.part import Part
    from .core.run import Run
    from .policy import Rule
    from .services import Services
    from .toolkit.offer import RunOffer
    from .tools.base import AnyTool
    from .verification.own_checks import CheckKind
    from .web.dial import Network


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """What a worker is started with, for the process itself and for those of single runs."""

    settings: Settings
    redis_url: str
    name: str
    tools: Sequence[AnyTool] | None
    network: Network | None
    parts: Sequence[Callable[[Attempt], Part]]
    checks: Mapping[str, CheckKind[Any]]


def register(app: Celery, start: WorkerStart) -> None:
    """Registers ``deputize.run`` with the app, and the services that its runs share with the pool."""
    opened: list[Services] = []
    settings, garbage = start.settings, RunGarbage()
    return_large_memory()

    @asynccontextmanager
    async def service(pool: AsyncPool) -> AsyncGenerator[None]:
        async with (
            _prepared(settings, start.redis_url) as bounds,
            Standby(start.redis_url, settings.lease_seconds) as standby,
        ):
            opening = await _services(app, start, bounds, standby, pool.limit, waiting=pool.waiting)
            async with opening as services:
                services.start_alone, services.hands_over = partial(start_alone, start), pool.hands_over
                services.parts, services.checks = start.parts, start.checks
                opened.append(services)
                services.status.drain, services.status.draining = pool.drain, lambda: pool.draining
                if janitor := services.janitor:
                    janitor.drains, janitor.end = services.status.draining, partial(carry_out, services)
                revoke_means_cancel(lambda ids: run_coroutine_threadsafe(_cancel(services.store, ids), pool.loop))
                yield
                opened.clear()

    async def run(self: AsyncTask, id: str) -> str | None:
        services = opened[0]
        with garbage.of_run():
            # In the queue of all runs a ticket is for the next one; on another one it is for the run that it names.
            is_of_all = self.request.delivery_info["routing_key"] == QUEUE
            result = await carry_out(services, id, is_ticket=is_of_all)
        return await end_of_task(services.store, services.progress, id, result)

    app.task(run, name=TASK, base=DelegationTask, bind=True, throws=(Unsuccessful,))
    set_service(app, service)


async def _services(
    app: Celery, start: WorkerStart, bounds: WorkerBounds, standby: Standby, concurrency: int, **more: Any
) -> AbstractAsyncContextManager[Services]:
    """Returns what opens the services of a process; ``more`` are further arguments of ``open_services``."""
    offer, rules = await _offer(start.settings, start.tools, bounds, start.network)
    from .services import open_services

    send, progress = partial(send_tickets, app), ProgressEvents(app, start.name)
    own: dict[str, Any] = {"name": start.name, "concurrency": concurrency, "standby": standby}
    return open_services(start.redis_url, offer, rules=rules, send=send, progress=progress, **own, **more)


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
    _classes_of_runs()
    try:
        open_model(settings.model, settings)
    except (DeputizeError, ImportError, OSError) as error:  # runs with a model of their own need no other
        log.warning("runs with the default model will fail: %s", error)


@cache
def _load_encoding() -> Thread:
    """Begins to load the encoding of tokens, once per process, with its first run.

    It takes half of the memory of a worker, so an idle one is without it. What counts tokens waits for it in a thread:
    the loop, which loading would hold up for a second, does not.
    """
    thread = Thread(target=count, args=("loads the encoding",), daemon=True)
    thread.start()
    return thread


async def carry_out(services: Services, id: str, *, is_ticket: bool = False) -> ToolAgentResult | None:
    """Claims a delegation and runs it, unless it is held, finished or gone; with a ticket the next one of the queue.

    One that blocked its workers' event loops goes on in a process of its own: it blocks no other run then.

    Returns the result, or None where there was nothing to run. Where the worker shuts down it hands the run back, so
    that another worker takes it at once instead of waiting for the lease to lapse: at the next turn or call of the
    run, then without a result, else when it is cancelled.
    """
    async with services.open_files.admitted(id):
        return await _carry_out_here_or_alone(services, id, is_ticket=is_ticket)


async def _carry_out_here_or_alone(services: Services, id: str, *, is_ticket: bool) -> ToolAgentResult | None:
    alone = services.start_alone
    try:
        return await _execute_next(services, id, is_alone=alone is None, is_ticket=is_ticket)
    except GoesAlone as found:
        assert alone
        id = str(found)
    try:
        with services.free_slot():  # that process cannot free this place while it waits for others
            return await alone(id)
    except Misconfigured as error:
        log.warning("%s goes on beside others: %s", id, error)
        return await _execute_next(services, id, is_alone=True)


def run_of(claim: Claim, services: Services, stop: StopSignal, **more: float) -> Run:
    """Returns one attempt at a delegation, of its core, the resources of its worker and its parts.

    ``more`` are further arguments of ``Run``.
    """
    new_attempt, parts_of, new_run = _classes_of_runs()
    attempt = new_attempt(claim, services, stop)
    return new_run(attempt, parts_of(attempt), stop, **more)


def _classes_of_runs() -> tuple[type[Attempt], Callable[[Attempt], list[Part]], type[Run]]:
    """Imports them: a worker announces itself sooner without them."""
    from .attempts import Attempt
    from .core.run import Run
    from .parts.table import parts_of

    return Attempt, parts_of, Run


async def _execute_next(
    services: Services, id: str, *, is_alone: bool, is_ticket: bool = False
) -> ToolAgentResult | None:
    claim = await services.claim(id, is_alone=is_alone, is_ticket=is_ticket)
    return await _execute(services, claim) if claim else None


async def _execute(services: Services, claim: Claim) -> ToolAgentResult | None:
    if not services.settings.temporary:  # the runs of a command with a stack of its own rarely count
        _load_encoding()
    stop: StopSignal | None = None
    try:
        async with services.leases.held(claim) as stop:
            return await run_of(claim, services, stop).execute()
    except asyncio.CancelledError:
        await asyncio.wait({services.release(claim, stop.used if stop else {})}, timeout=2)
        if services.hands_over.is_set() and (task := asyncio.current_task()) and not task.cancelling():
            return None  # it has ended by itself, where nothing was under way
        raise
    finally:
        services.progress.drop(claim.id)


async def start_alone(start: WorkerStart, id: str) -> ToolAgentResult | None:
    """Carries out a run in a process of its own, as ``carry_out`` does. Cancelled, that process hands the run back.

    It is a new one, and no fork: a process with threads cannot be forked safely. It is ended where it does not claim
    the run in time. Raises Misconfigured where the worker has tools that no other process can be given.
    """
    try:
        given = bytes(ForkingPickler.dumps(start))
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
        raise Misconfigured(f"the tools of this worker cannot be passed to another process ({error})") from None
    context = multiprocessing.get_context("spawn")
    connection, its_end = context.Pipe()
    process = context.Process(target=_run_alone, args=(id, its_end), name=f"alone {id}", daemon=True)
    log.warning("%s goes on in a process of its own, because its workers' event loops were blocked", id)
    # On this thread, which lasts as long as this process: the other one ends with the thread that has started it. It
    # gets little here, because this thread waits until a pipe has taken all of it.
    with ExitStack() as closed_on_error, its_end:
        closed_on_error.enter_context(connection)
        process.start()
        closed_on_error.pop_all()
    seconds, counts = START_CLAIMS * start.settings.claim_seconds, partial(takes_writes, start.redis_url)
    ended = asyncio.ensure_future(received(process, connection, given, seconds, counts=counts))
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        process.terminate()
        if not (await asyncio.wait({ended}, timeout=CLEANUP_SECONDS - 1))[0]:  # before the pool cancels again
            process.kill()
        raise
    finally:
        try:
            await ended
        finally:
            process.kill()  # it has ended, except after an error
            process.join()
            process.close()


def _run_alone(id: str, connection: Connection) -> None:
    """The whole of a process that carries out one run."""
    send_on_death_of_parent(signal.SIGTERM)
    worker = multiprocessing.parent_process()
    if worker and os.getppid() != worker.pid:  # it died before: nothing would ever end this process
        return
    keep_memory_private()
    faulthandler.enable(2)
    os.set_inheritable(connection.fileno(), False)  # it was passed to this process, and is for no other
    start: WorkerStart = connection.recv()
    set_up(start.settings.log_level, start.settings.secrets, start.settings.log_format)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, suppress(asyncio.CancelledError):
        runner.run(_carry_out_alone(start, id, connection))


async def _carry_out_alone(start: WorkerStart, id: str, connection: Connection) -> None:
    loop, work = asyncio.get_running_loop(), asyncio.current_task()
    assert work
    loop.add_signal_handler(signal.SIGTERM, work.cancel)
    share_threads(loop)
    settings, app = start.settings, create_app(start.settings, start.redis_url)
    async with Standby(start.redis_url, settings.lease_seconds) as standby:
        # Without a control group of its own: that of the worker holds this process, too.
        bounds = WorkerBounds(settings.sandbox)
        async with await _services(app, start, bounds, standby, 1, has_name=False) as services:
            services.parts, services.checks = start.parts, start.checks
            async with services.open_files.admitted(id):
                claim = await services.claim(id)
                connection.send(claim is not None)
                connection.send(await _execute(services, claim) if claim else None)
