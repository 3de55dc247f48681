"""``SyncOrchestrator``, the Python interface without ``await``, and ``run``, one delegation in one line.

A notebook's own event loop is busy with the notebook, so this has a loop in a thread of its own:

with SyncOrchestrator() as orchestrator:
    result = orchestrator.delegate("Count the public classes", workspace="/path/to/project")
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import wraps
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from anyio.from_thread import BlockingPortal

from ..shared.delegation import Data, ToolAgentResult
from ..shared.events import Envelope
from ..shared.request import DelegationRequest
from ..shared.settings import Settings
from .delegate_tool import DelegateTool, ToolAnswer
from .orchestrator import MAP_CONCURRENCY, EventCallback, OnEvent, Orchestrator
from .request_fields import SubmitFields, ToolFields

T = TypeVar("T")
P = ParamSpec("P")


def _blocking(
    operation: Callable[Concatenate[Orchestrator, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncOrchestrator, P], T]:
    """Returns the operation as one whose caller's thread waits for it."""

    @wraps(operation)
    def wait(self: SyncOrchestrator, /, *args: P.args, **fields: P.kwargs) -> T:
        return self._run(lambda: operation(self._orchestrator, *args, **fields))  # pyright: ignore[reportPrivateUsage]

    return wait


def _iterating(
    operation: Callable[Concatenate[Orchestrator, P], AsyncGenerator[T]],
) -> Callable[Concatenate[SyncOrchestrator, P], Generator[T]]:
    """Returns the operation as one that yields in its caller's thread."""

    @wraps(operation)
    def iterate(self: SyncOrchestrator, /, *args: P.args, **fields: P.kwargs) -> Generator[T]:
        async def begin() -> AsyncGenerator[T]:
            return operation(self._orchestrator, *args, **fields)  # pyright: ignore[reportPrivateUsage]

        return self._each(self._run(begin))  # pyright: ignore[reportPrivateUsage]

    return iterate


class SyncOrchestrator:
    """``Orchestrator`` with an event loop in a thread of its own; the same constructor, operations and errors.

    It opens with its first operation, and closes at the end of a ``with`` block, by ``close``, or with the interpreter.
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
        self._changing = threading.Lock()
        self._portal: BlockingPortal | None = None
        self._thread = threading.current_thread()
        self._ended = Future[None]()
        self._closed = False
        self._process = os.getpid()

    def open(self) -> None:
        """Opens it, unless it is open. Every operation does so.

        Raises RuntimeError after ``close``, and where it was open when this process was forked: its thread is not here.
        """
        if self._portal is not None and os.getpid() != self._process:
            raise RuntimeError("it was opened before this process was forked; make another SyncOrchestrator here")
        with self._changing:
            if self._closed:
                raise RuntimeError("it is closed; make another SyncOrchestrator, or enter this one by `with`")
            if self._portal is None:
                self._open()

    def _open(self) -> None:
        """Starts its thread, and waits until it has opened. Ctrl-C at any moment leaves it closed."""
        opened, ended = Future[BlockingPortal](), Future[None]()
        self._ended = ended
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(opened, ended)), name="deputize", daemon=True
        )
        try:
            self._thread.start()
            self._portal, self._process = opened.result(), os.getpid()
            atexit.register(self.close)
        except KeyboardInterrupt:
            self._portal = None
            if not opened.cancel() and opened.exception() is None:
                portal = opened.result()
                portal.start_task_soon(portal.stop, True)
            with suppress(RuntimeError):  # its thread has not begun, and ends at once if it does
                self._thread.join()  # what it has started ends before another one opens
            raise

    def close(self) -> None:
        """Ends its thread, its connections, and a stack that it started: unfinished delegations of that are paused."""
        if os.getpid() != self._process:
            self._closed = True  # a fork has the object, and neither its thread nor the holder of its lock
            return
        with self._changing:
            self._closed, portal, self._portal = True, self._portal, None
            if portal is not None:
                atexit.unregister(self.close)
                portal.start_task_soon(portal.stop, True)  # operations that other threads wait for end as well
                self._thread.join()
                self._ended.result()

    async def _serve(self, opened: Future[BlockingPortal], ended: Future[None]) -> None:
        """Sets ``opened`` to what runs work in this loop, or to why it does not open, and at the end ``ended``."""

        async def serve() -> None:
            async with self._orchestrator, BlockingPortal() as portal:
                if opened.set_running_or_notify_cancel():  # from here on it cannot be cancelled
                    opened.set_result(portal)
                    await portal.sleep_until_stopped()

        loop, serving = asyncio.get_running_loop(), asyncio.create_task(serve())

        def end_if_cancelled(_: object) -> None:
            with suppress(RuntimeError):  # the loop may have ended already
                if opened.cancelled():
                    loop.call_soon_threadsafe(serving.cancel)

        opened.add_done_callback(end_if_cancelled)
        await asyncio.wait({serving})
        error = None if serving.cancelled() else serving.exception()
        if not opened.done():
            if opened.set_running_or_notify_cancel():
                opened.set_exception(error)
        elif error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    def __enter__(self) -> Self:
        self._closed = False
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    evaluate = _blocking(Orchestrator.evaluate)
    upload = _blocking(Orchestrator.upload)
    start = _blocking(Orchestrator.start)
    continue_ = _blocking(Orchestrator.continue_)
    retry = _blocking(Orchestrator.retry)
    resume = _blocking(Orchestrator.resume)
    get = _blocking(Orchestrator.get)
    events = _blocking(Orchestrator.events)
    steps = _blocking(Orchestrator.steps)
    patch = _blocking(Orchestrator.patch)
    proof = _blocking(Orchestrator.proof)
    artifact = _blocking(Orchestrator.artifact)
    files = _blocking(Orchestrator.files)
    apply = _blocking(Orchestrator.apply)
    cancel = _blocking(Orchestrator.cancel)
    send = _blocking(Orchestrator.send)
    wrap_up = _blocking(Orchestrator.wrap_up)
    deliver = _blocking(Orchestrator.deliver)
    merge = _blocking(Orchestrator.merge)
    permissions = _blocking(Orchestrator.permissions)
    answer_permission = _blocking(Orchestrator.answer_permission)
    webhooks = _blocking(Orchestrator.webhooks)
    redeliver = _blocking(Orchestrator.redeliver)
    try_webhook = _blocking(Orchestrator.try_webhook)
    prune = _blocking(Orchestrator.prune)
    counts = _blocking(Orchestrator.counts)
    disk = _blocking(Orchestrator.disk)
    cost = _blocking(Orchestrator.cost)
    audit = _blocking(Orchestrator.audit)
    schedules = _blocking(Orchestrator.schedules)
    run_schedule = _blocking(Orchestrator.run_schedule)
    pause_schedule = _blocking(Orchestrator.pause_schedule)
    resume_schedule = _blocking(Orchestrator.resume_schedule)
    workers = _blocking(Orchestrator.workers)
    environments = _blocking(Orchestrator.environments)
    capacity = _blocking(Orchestrator.capacity)
    losses = _blocking(Orchestrator.losses)
    drain = _blocking(Orchestrator.drain)
    tools = _blocking(Orchestrator.tools)
    not_ready = _blocking(Orchestrator.not_ready)
    follow = _iterating(Orchestrator.follow)
    follow_all = _iterating(Orchestrator.follow_all)
    file = _iterating(Orchestrator.file)
    as_completed = _iterating(Orchestrator.as_completed)

    @overload
    def delegate(
        self, task: str | DelegationRequest, *, on_event: EventCallback | None = None, **fields: Unpack[SubmitFields]
    ) -> ToolAgentResult: ...

    @overload
    def delegate(
        self, task: str, *, output: type[Data], on_event: EventCallback | None = None, **fields: Unpack[SubmitFields]
    ) -> Data: ...

    def delegate(
        self, task: Any, *, output: Any = None, on_event: EventCallback | None = None, **fields: Unpack[SubmitFields]
    ) -> Any:
        """Submits a task and returns its result, with an ``output`` type the data as an instance of it."""
        given: Any = {**fields, "output": output}
        return self._with_events(lambda put: self._orchestrator.delegate(task, on_event=put, **given), on_event)

    def gather(
        self,
        requests: Sequence[str | DelegationRequest],
        *,
        on_event: Callable[[Envelope], None] | None = None,
        **fields: Unpack[SubmitFields],
    ) -> list[ToolAgentResult]:
        """Submits several tasks, all or none. Returns their results in the order of the requests."""
        return self._with_events(lambda put: self._orchestrator.gather(requests, on_event=put, **fields), on_event)

    def map(
        self,
        requests: Iterable[str | DelegationRequest],
        *,
        concurrency: int = MAP_CONCURRENCY,
        on_event: EventCallback | None = None,
        **fields: Unpack[SubmitFields],
    ) -> list[ToolAgentResult]:
        """Runs each task once, however often it is called. Returns the results in the order of the requests."""
        given: Any = {**fields, "concurrency": concurrency}
        return self._with_events(lambda put: self._orchestrator.map(requests, on_event=put, **given), on_event)

    def as_tool(self, **fields: Unpack[ToolFields]) -> DelegateTool[ToolAnswer]:
        """Returns a tool that delegates, for the model of another program; its ``call`` waits for the result."""
        tool = self._orchestrator.as_tool(**fields)

        def call(arguments: Mapping[str, Any] | str) -> ToolAnswer:
            return self._run(lambda: tool.call(arguments))

        return DelegateTool(tool.name, tool.description, tool.parameters, call)

    def result(self, id: str, on_event: Callable[[Envelope], None] | None = None) -> ToolAgentResult:
        """Waits for a delegation. Returns its result."""
        return self._with_events(lambda put: self._orchestrator.result(id, put), on_event)

    def _each(self, items: AsyncGenerator[T]) -> Generator[T]:
        try:
            while (item := self._run(lambda: anext(items, None))) is not None:
                yield item
        finally:
            if self._portal is not None:
                self._run(items.aclose)

    def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        future = self._begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C: nothing waits for it any more
            raise

    def _with_events(
        self, work: Callable[[OnEvent | None], Awaitable[T]], on_event: Callable[[Envelope], None] | None
    ) -> T:
        """Runs the work, and calls ``on_event`` in this thread with each event that the work's callback receives."""
        if on_event is None:
            return self._run(lambda: work(None))
        events: SimpleQueue[Envelope | None] = SimpleQueue()
        future = self._begin(lambda: work(events.put))
        future.add_done_callback(lambda _: events.put(None))
        try:
            while (envelope := events.get()) is not None:
                on_event(envelope)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _begin(self, work: Callable[[], Awaitable[T]]) -> Future[T]:
        self.open()
        assert self._portal is not None
        return self._portal.start_task_soon(work)

    list = _blocking(Orchestrator.list)  # the last one, because it hides the type


@overload
def run(
    task: str | DelegationRequest, *, on_event: EventCallback | None = None, **fields: Unpack[SubmitFields]
) -> ToolAgentResult: ...


@overload
def run(
    task: str, *, output: type[Data], on_event: EventCallback | None = None, **fields: Unpack[SubmitFields]
) -> Data: ...


def run(task: Any, **fields: Any) -> Any:
    """Submits a task and returns its result: ``SyncOrchestrator.delegate`` with a ``SyncOrchestrator`` of its own."""
    with SyncOrchestrator() as orchestrator:
        return orchestrator.delegate(task, **fields)
