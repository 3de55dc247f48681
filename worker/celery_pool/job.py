"""One job of the pool: Celery's own tracer in a greenlet, driven by an asyncio task.

When the task's coroutine has to wait, the greenlet passes the awaitable to the asyncio task and suspends. So the
coroutine runs inside a plain asyncio task, and Celery's synchronous code runs around it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol

from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError
from celery import Task
from celery.exceptions import SoftTimeLimitExceeded
from greenlet import getcurrent, greenlet

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
            if job.soft_limit_hit:
                raise SoftTimeLimitExceeded(job.limits[0]) from None
            if not job.cancelled:
                # Celery would take it for a lost worker; it is an ordinary error of the task.
                raise RuntimeError("the task ended in a cancellation that was not requested") from None
            raise


class Pool(Protocol):
    """The part of the pool that its jobs use."""

    loop: asyncio.AbstractEventLoop

    def call_soon_in_consumer(self, call: Callable[[], Any]) -> None: ...

    def forget(self, job: Job) -> None: ...

    def waiting(self) -> AbstractContextManager[None]: ...


class _Tracer(greenlet):
    """Celery's tracer of one job. A class of its own, so that ``await_`` can detect whether it may switch."""


class Job:
    """One task message being processed. Runs on the loop's thread; only ``report`` runs on Celery's."""

    def __init__(self, pool: Pool, number: int, trace: Callable[[], Any], options: dict[str, Any]) -> None:
        self.pool = pool
        self.number = number
        self.limits: tuple[float | None, float | None] = (options.get("soft_timeout"), options.get("timeout"))
        self.cancelled = False
        self.ended = False
        self.soft_limit_hit = False
        self._trace = trace
        self._options = options
        self._announced = False
        self._outcome: Callable[[], None] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        loop = self.pool.loop
        self._task = loop.create_task(self._drive(), name=self._options.get("correlation_id"))
        self._task.add_done_callback(self._finished)
        for seconds, hit in zip(self.limits, (self._soft_limit, self._hard_limit), strict=True):
            if seconds:
                self._timers.append(loop.call_later(seconds, hit))

    async def _drive(self) -> None:
        current_job.set(self)
        tracer = _Tracer(self._trace)
        # One context for tracer and coroutine: context variables set by one are visible to the other.
        tracer.gr_context = getcurrent().gr_context
        step = tracer.switch
        try:
            wanted = step()
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
        for timer in self._timers:
            timer.cancel()
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
        self._cancel()
        self._timers.append(self.pool.loop.call_later(CLEANUP_SECONDS, self._insist))

    def _cancel(self) -> None:
        if self._task is not None and not self._task.done():
            self.cancelled = True
            self._task.cancel()

    def _soft_limit(self) -> None:
        self.soft_limit_hit = True
        self.pool.call_soon_in_consumer(partial(self._options["timeout_callback"], True, self.limits[0]))
        self._cancel()

    def _hard_limit(self) -> None:
        self._announced = True
        self.pool.call_soon_in_consumer(partial(self._options["timeout_callback"], False, self.limits[1]))
        self._insist()
