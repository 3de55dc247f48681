"""A pool of Celery whose jobs are coroutines: one event loop in a thread beside Celery's own.

Celery's thread takes messages and hears how jobs end; the loop's thread runs jobs and services. Each calls the other
only by a queue.

A job is Celery's own tracer in a greenlet, driven by an asyncio task. When the task's coroutine has to wait, the
greenlet passes the awaitable to the asyncio task and suspends. So the coroutine runs inside a plain asyncio task, and
Celery's synchronous code runs around it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import uvloop
from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError
from celery import Celery, Task, _state
from celery.concurrency.base import BasePool
from celery.worker import state
from greenlet import getcurrent, greenlet

from ...shared.errors import DeputizeError
from ..threads import share_threads

CLEANUP_SECONDS = 5.0
"""How long a cancelled job may clean up before it is cancelled again: a library may have swallowed the first one."""

current_job: ContextVar[Job | None] = ContextVar("job", default=None)


def await_(awaitable: Awaitable[Any]) -> Any:
    """Waits for ``awaitable`` from synchronous code inside a job, without blocking the loop."""
    tracer = getcurrent()
    if not isinstance(tracer, _Tracer) or tracer.parent is None:
        raise RuntimeError("await_ works only inside a job of deputize.worker.celery_pool.pool")
    return tracer.parent.switch(awaitable)


class AsyncTask(Task):
    """Base class of tasks written as ``async def``. Called outside the pool, it runs in an event loop of its own."""

    abstract = True

    @property
    def job(self) -> Job:
        """The running job; its ``pool`` provides ``waiting()``."""
        job = current_job.get()
        if job is None:
            raise RuntimeError("no job of deputize.worker.celery_pool.pool is running here")
        return job

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        job = current_job.get()
        work = self.run(*args, **kwargs)
        if job is None:
            return asyncio.run(work)
        try:
            return await_(work)
        except asyncio.CancelledError:
            if not job.cancelled:
                # Celery would take it for a lost worker; it is an ordinary error of the task.
                raise RuntimeError("the task ended in a cancellation that was not requested") from None
            raise


class _Tracer(greenlet):
    """Celery's tracer of one job. A class of its own, so that ``await_`` can detect whether it may switch."""


class Job:
    """One task message being processed. Runs on the loop's thread; only ``report`` runs on Celery's."""

    def __init__(self, pool: AsyncPool, number: int, trace: Callable[[], Any], options: dict[str, Any]) -> None:
        self.pool = pool
        self.number = number
        self.cancelled = False
        self.ended = False
        self._trace = trace
        self._options = options
        self._announced = False
        self._outcome: Callable[[], None] | None = None
        self._insisting: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self.pool.loop.create_task(self._drive(), name=self._options.get("correlation_id"))
        self._task.add_done_callback(self._finished)

    async def _drive(self) -> None:
        current_job.set(self)
        tracer = _Tracer(self._trace)
        # One context for tracer and coroutine: context variables set by one are visible to the other.
        tracer.gr_context = getcurrent().gr_context
        try:
            wanted = tracer.switch()
            while not tracer.dead:
                try:
                    value = await wanted
                except BaseException as error:  # noqa: BLE001 - also a cancellation belongs to the coroutine first
                    wanted = tracer.throw(type(error), error, error.__traceback__)
                else:
                    wanted = tracer.switch(value)
            self._outcome = partial(self._options["callback"], wanted)
        except asyncio.CancelledError:
            if not self._announced:
                self._lost("cancelled")
        except BaseException as error:  # noqa: BLE001 - SystemExit would end the loop and every other job with it
            self._lost(repr(error))

    def _lost(self, why: str) -> None:
        try:
            raise WorkerLostError(why)
        except WorkerLostError:
            self._outcome = partial(self._options["error_callback"], ExceptionInfo())

    def _finished(self, _: asyncio.Task[None]) -> None:
        self.ended = True
        if self._insisting:
            self._insisting.cancel()
        self.pool.call_soon_in_consumer(self.report)

    def report(self) -> None:
        """On Celery's thread: reports how the job ended, unless Celery has announced it already."""
        self.pool.forget(self)
        if self._outcome is not None and not self._announced:
            self._outcome()

    def announce_and_cancel(self) -> None:
        """For revokes and shutdown: Celery announces the task's state itself, so its outcome is not reported."""
        self._announced = True
        if not self.cancelled:
            self._insist()

    def terminate(self, signum: int | None = None) -> None:
        """Part of Celery's interface for results of ``apply_async``. The pool's ``terminate_job`` does the work."""

    def _insist(self) -> None:
        if self._task is not None and not self._task.done():
            self.cancelled = True
            self._task.cancel()
        self._insisting = self.pool.loop.call_later(CLEANUP_SECONDS, self._insist)


def share_request_stacks(app: Celery) -> None:
    """Makes ``self.request`` and ``self.retry`` work inside coroutines.

    Celery 5.7.0 keeps the running request in stacks per greenlet or thread. The tracer pushes in its own greenlet, the
    coroutine reads in the loop's: with this fix both use the stack of their job.
    ``tests/worker/celery_pool/test_celery_fixes.py`` fails as soon as it is not needed any more.
    """

    def identity() -> Any:
        return current_job.get() or threading.get_ident()

    _state._task_stack.__ident_func__ = identity  # pyright: ignore[reportPrivateUsage]
    for task in app.tasks.values():
        task.request_stack.__ident_func__ = identity


STALL_SECONDS = 0.1
PERIOD_SECONDS = 0.05
QUIET_SECONDS = 10
"""At most one report per interval: an overloaded machine would fill the log with one cause."""


class Watchdog(threading.Thread):
    """Checks periodically, from a thread of its own, that the loop responds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._loop = loop
        self._watched = thread
        self._stopped = threading.Event()
        self._quiet_until = 0.0
        self.stalls = 0
        self.longest = 0.0

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        while not self._stopped.wait(PERIOD_SECONDS):
            alive = threading.Event()
            asked = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(alive.set)
            except RuntimeError:  # the loop was closed
                return
            if not alive.wait(STALL_SECONDS):
                self._stalled(alive, asked)

    def _stalled(self, alive: threading.Event, asked: float) -> None:
        stack = self._blocked_stack()
        while not alive.wait(1):
            if self._stopped.is_set():
                return
            stack = self._blocked_stack() or stack
        if stack is None:  # the loop has nothing to do: this machine gave us no time
            return
        lasted = time.monotonic() - asked
        self.stalls += 1
        self.longest = max(self.longest, lasted)
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + QUIET_SECONDS
            logger.warning("the event loop was blocked for %.0f ms in:\n%s", lasted * 1000, stack)

    def _blocked_stack(self) -> str | None:
        """Returns the stack of the loop's thread; None where it runs no Python code."""
        frame: FrameType | None = sys._current_frames().get(self._watched.ident or 0)  # pyright: ignore[reportPrivateUsage]
        if frame is None or frame.f_code.co_filename == asyncio.runners.__file__:
            return None
        return "".join(traceback.format_stack(frame, limit=8))


logger = logging.getLogger(__name__)
DRAIN_SIGNAL = signal.SIGUSR2

Service = Callable[["AsyncPool"], AbstractAsyncContextManager[Any]]

_services: WeakKeyDictionary[Celery, Service] = WeakKeyDictionary()


def set_service(app: Celery, service: Service) -> None:
    """Opens ``service(pool)`` on the loop before the first job; closes it after the last.

    One asyncio task opens and closes it, so it may hold a TaskGroup with background tasks. When it ends by itself, the
    worker stops: what it maintained (leases, for example) is no longer maintained.
    """
    _services[app] = service


class AsyncPool(BasePool):
    """See the module's docstring. ``limit`` bounds the jobs that run; jobs inside ``waiting()`` do not count."""

    signal_safe = False
    body_can_be_buffer = True
    task_join_will_block = False

    app: Celery
    loop: asyncio.AbstractEventLoop

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.failure: BaseException | None = None
        self._jobs: dict[int, Job] = {}
        self._numbers = itertools.count(1)
        self._calls: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._hub: Any = None
        self.draining = False
        """Whether the worker takes no more jobs, and stays without any until it is stopped."""
        self.hands_over = asyncio.Event()
        """Set once jobs are to end as soon as nothing of theirs is cut off; later they are cancelled."""
        self._waiting = 0
        self._peak = 0
        self._closed = False
        self._opened: Future[None] = Future()

    # --- Celery's thread ---------------------------------------------------------------------------

    def on_start(self) -> None:
        share_request_stacks(self.app)
        self._thread = threading.Thread(target=self._run_loop, name="loop", daemon=True)
        self._thread.start()
        try:
            while not self._opened.done():
                wait([self._opened], timeout=0.2)
                state.maybe_shutdown()  # asked to stop while a service is still opening
            self._opened.result()
        except DeputizeError as error:  # its message is complete; Celery would add three tracebacks
            logger.critical("%s", error)
            raise SystemExit from error
        self._watchdog = Watchdog(self.loop, self._thread)
        self._watchdog.start()

    def register_with_event_loop(self, loop: Any) -> None:
        self._hub = loop  # that is Celery's, not ours

    def on_apply(self, target: Any, args: Any, kwargs: Any, **options: Any) -> Any:
        job = Job(self, next(self._numbers), partial(target, *args, **kwargs), options)
        self._jobs[job.number] = job
        self._peak = max(self._peak, len(self._jobs))
        # Accepted, and so acknowledged, before it starts. The number takes the place of a process id in Celery,
        # so that terminate_job finds exactly this job.
        options["accept_callback"](job.number, time.monotonic())
        self.loop.call_soon_threadsafe(job.start)
        return job

    def terminate_job(self, pid: int, signal: Any = None) -> None:
        if job := self._jobs.get(pid):
            self.loop.call_soon_threadsafe(job.announce_and_cancel)

    def hand_over(self) -> None:
        """Asks the jobs to end soon."""
        self.loop.call_soon_threadsafe(self.hands_over.set)

    def forget(self, job: Job) -> None:
        self._jobs.pop(job.number, None)

    def run_calls(self, seconds: float = 0) -> None:
        """Makes the calls queued by the loop's thread; waits up to ``seconds`` for the first."""
        while True:
            try:
                call = self._calls.get(timeout=seconds) if seconds else self._calls.get_nowait()
            except queue.Empty:
                return
            seconds = 0
            try:
                call()
            except Exception:
                logger.exception("Celery could not take the end of a job")

    def on_stop(self) -> None:
        # However long they take: only cancelled jobs have a time limit.
        while not all(job.cancelled for job in self._jobs.values()):
            self.run_calls(0.1)
        self.on_terminate()

    def cancel_all(self) -> None:
        for number in list(self._jobs):
            self.terminate_job(number)

    def on_terminate(self) -> None:
        self.cancel_all()
        # Twice: code that swallowed the first cancellation gets a second one.
        deadline = time.monotonic() + 2 * CLEANUP_SECONDS
        while self._jobs and time.monotonic() < deadline:
            self.run_calls(0.1)
        if self._jobs:
            logger.error("%d jobs did not end when cancelled", len(self._jobs))
        if self._closed:
            return
        self._closed = True
        self._watchdog.stop()
        self.loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(CLEANUP_SECONDS)
        self.run_calls()

    def grow(self, n: int = 1) -> None:
        self.limit += n

    def shrink(self, n: int = 1) -> None:
        self.limit = max(1, self.limit - n)

    @property
    def num_processes(self) -> int:
        """Compared by Celery with the number of reserved tasks before it takes another message."""
        return self.limit + self._waiting

    @property
    def running(self) -> int:
        """Jobs that have not ended, even while Celery cannot record their end because Redis is unavailable."""
        return sum(not job.ended for job in list(self._jobs.values()))

    def _get_info(self) -> dict[str, Any]:
        return super()._get_info() | {
            "running": self.running,
            "waiting": self._waiting,
            "peak": self._peak,
            "stalls": self._watchdog.stalls,
            "longest-stall": round(self._watchdog.longest, 3),
        }

    # --- the loop's thread -------------------------------------------------------------------------

    def call_soon_in_consumer(self, call: Callable[[], Any]) -> None:
        """Queues ``call`` for Celery's thread; calls are made in order."""
        self._calls.put(call)
        if self._hub is not None:
            self._hub.call_soon(self.run_calls)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Frees this job's slot for another one while it waits for a child delegation."""
        self._waiting += 1
        self.call_soon_in_consumer(lambda: None)  # wakes Celery's hub, which may now take another message
        try:
            yield
        finally:
            self._waiting -= 1

    def drain(self) -> None:
        """Asks the worker to take no more jobs and to hand its own over."""
        os.kill(os.getpid(), DRAIN_SIGNAL)

    def _run_loop(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        share_threads(self.loop)
        self._closing = asyncio.Event()
        serving = asyncio.create_task(self._hold_service(), name="service")
        await asyncio.wait([serving])
        if (error := serving.exception()) is None:
            return
        if self._closing.is_set():
            logger.error("a service of this worker could not be closed", exc_info=error)
            return
        self.failure = error
        if not self._opened.done():
            self._opened.set_exception(error)
            return
        logger.critical("a service of this worker ended, so the worker stops", exc_info=error)
        os.kill(os.getpid(), signal.SIGTERM)
        await self._closing.wait()  # the jobs get their time to hand over

    async def _hold_service(self) -> None:
        async with _services[self.app](self):
            self._opened.set_result(None)
            await self._closing.wait()
