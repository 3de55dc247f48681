"""The Python interface without ``await``: for scripts, and for notebooks, whose event loop is busy with the notebook.

with SyncOrchestrator() as orchestrator:
    result = orchestrator.delegate("Count the public classes", workspace="/path/to/project")
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Self, TypeVar, Unpack

from ..shared.delegation import Delegation, ToolAgentResult
from ..shared.events import Envelope
from ..shared.permission import PermissionOutcome, PermissionRequest
from ..shared.request import DelegationRequest, Limits
from ..shared.settings import Settings
from .orchestrator import OnEvent, Orchestrator, RequestFields

T = TypeVar("T")


class SyncOrchestrator:
    """``Orchestrator`` with an event loop in a thread of its own; the same constructor, operations and errors.

    Callbacks are called in the thread that waits. Ctrl-C ends the wait, not the delegation.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        workers: int = 1,
    ) -> None:
        self._orchestrator = Orchestrator(settings, url=url, token=token, workers=workers)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=_serve, args=[started], name="deputize", daemon=True)
        self._thread.start()
        self._loop = started.result()
        try:
            self._run(self._orchestrator.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._run(self._orchestrator.__aexit__())
        finally:
            self._stop()

    def start(self, task: str | DelegationRequest, **fields: Unpack[RequestFields]) -> Delegation:
        """Submits a task and returns at once."""
        return self._run(self._orchestrator.start(task, **fields))

    def delegate(
        self,
        task: str | DelegationRequest,
        *,
        on_event: Callable[[Envelope], None] | None = None,
        **fields: Unpack[RequestFields],
    ) -> ToolAgentResult:
        """Submits a task and returns its result."""
        return self._with_events(lambda put: self._orchestrator.delegate(task, on_event=put, **fields), on_event)

    def gather(
        self,
        requests: Sequence[str | DelegationRequest],
        *,
        on_event: Callable[[Envelope], None] | None = None,
        **fields: Unpack[RequestFields],
    ) -> list[ToolAgentResult]:
        """Submits several tasks, all or none. Returns their results in the order of the requests."""
        return self._with_events(lambda put: self._orchestrator.gather(requests, on_event=put, **fields), on_event)

    def follow(self, id: str, after: int = 0) -> Generator[Envelope]:
        """Yields every event of a delegation, live, up to ``run_finished``."""
        events = self._orchestrator.follow(id, after)
        try:
            while (envelope := self._run(_next(events))) is not None:
                yield envelope
        finally:
            if self._loop is not None:
                self._run(events.aclose())

    def result(self, id: str, on_event: Callable[[Envelope], None] | None = None) -> ToolAgentResult:
        """Waits for a delegation. Returns its result."""
        return self._with_events(lambda put: self._orchestrator.result(id, put), on_event)

    def continue_(
        self, id: str, text: str, limits: Limits | None = None, *, idempotency_key: str | None = None
    ) -> Delegation:
        """Goes on with a finished delegation: a new one over its conversation and its files, started at once."""
        return self._run(self._orchestrator.continue_(id, text, limits, idempotency_key=idempotency_key))

    def retry(self, id: str, *, from_turn: int | None = None, idempotency_key: str | None = None) -> Delegation:
        """Hands the task of a finished delegation over again, as a new one, started at once.

        ``from_turn``: with the conversation and the files as they were before that turn of its run.
        """
        return self._run(self._orchestrator.retry(id, from_turn=from_turn, idempotency_key=idempotency_key))

    def resume(self, id: str) -> Delegation:
        """Goes on with a paused delegation, which an ended stack left; without effect on another unfinished one."""
        return self._run(self._orchestrator.resume(id))

    def permissions(self, delegation: str | None = None) -> list[PermissionRequest]:
        """Returns the calls that wait for a person, the oldest first; of a delegation and those below it, or all."""
        return self._run(self._orchestrator.permissions(delegation))

    def answer_permission(
        self,
        id: str,
        outcome: PermissionOutcome | str,
        *,
        reason: str | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        """Answers a call that waits; ``outcome`` is also an alias: ``approve``, ``deny``. A second answer: Conflict."""
        self._run(self._orchestrator.answer_permission(id, outcome, reason=reason, arguments=arguments))

    def cancel(self, id: str) -> Delegation:
        """Requests cancellation; idempotent."""
        return self._run(self._orchestrator.cancel(id))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = self._submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C: nothing waits for it any more
            raise

    def _with_events(
        self, work: Callable[[OnEvent | None], Coroutine[Any, Any, T]], on_event: Callable[[Envelope], None] | None
    ) -> T:
        """Runs the work, and calls ``on_event`` in this thread with each event that the work's callback receives."""
        if on_event is None:
            return self._run(work(None))
        events: SimpleQueue[Envelope | None] = SimpleQueue()
        future = self._submit(work(events.put))
        future.add_done_callback(lambda _: events.put(None))
        try:
            while (envelope := events.get()) is not None:
                on_event(envelope)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._loop is None:
            work.close()
            raise RuntimeError("it is not open; use it inside `with SyncOrchestrator() as orchestrator:`")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _stop(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop = self._thread = None


def _serve(started: Future[asyncio.AbstractEventLoop]) -> None:
    """Runs an event loop until it is stopped, then ends what is left in it."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        started.set_result(loop)
        loop.run_forever()


async def _next(events: AsyncGenerator[Envelope]) -> Envelope | None:
    return await anext(events, None)
