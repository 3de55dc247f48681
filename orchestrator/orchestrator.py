"""The Python interface: ``Orchestrator``, and ``SyncOrchestrator`` for scripts and for notebooks.

A notebook's own event loop is busy with the notebook, so the second one has a loop in a thread of its own:

with SyncOrchestrator() as orchestrator:
    result = orchestrator.delegate("Count the public classes", workspace="/path/to/project")
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, ExitStack, aclosing
from functools import wraps
from inspect import isawaitable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal
from pydantic import ValidationError

from ..shared.delegation import Data, Delegation, ToolAgentResult
from ..shared.errors import DeputizeError, Invalid, Misconfigured
from ..shared.events import Envelope, RunFinished
from ..shared.facts import VerifyItem
from ..shared.message import MessageMode
from ..shared.permission import PermissionOutcome, PermissionRequest, parse_outcome
from ..shared.redis_access import reached
from ..shared.request import (
    DelegationRequest,
    Deliver,
    Limits,
    MergeRequest,
)
from ..shared.runs.webhooks import Notification
from ..shared.settings import Settings
from ..shared.wire import Request, explain
from .client import Client
from .delegations import open_service
from .packing import pack
from .request_fields import MergeFields, RequestFields
from .service import MergeReport, Service, follow_unless_paused, refuse_paused
from .stack import stack_in_use

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R", bound=Request)

EventCallback = Callable[[Envelope], None]
OnEvent = EventCallback | Callable[[Envelope], Awaitable[None]]
"""Called with every event of a delegation, text deltas, progress and errors included; it may be async."""


class Orchestrator:
    """The service of ``DEPUTIZE_URL``, else one in this process over ``DEPUTIZE_REDIS_URL`` or this machine's stack.

    Raises ``Misconfigured`` and ``Unavailable`` on entering; its operations raise the ``Refused`` tree.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        workers: int = 1,
    ) -> None:
        """Takes the settings of the environment and the settings file, unless some are given.

        Args:
            settings: All settings.
            url: The service to use, instead of that of the settings.
            token: Its token.
            workers: The number of workers of a stack that has to be started.

        Raises:
            Misconfigured: A setting is wrong.
        """
        if settings is not None and (url, token) != (None, None):
            raise Misconfigured("url and token are settings: give them alone, or in the settings")
        self._settings = settings or Settings.load(url=url, token=token)
        self._workers = workers
        self._exit = AsyncExitStack()
        self._service: Service | None = None

    async def __aenter__(self) -> Self:
        settings = self._settings
        if settings.url:
            token = settings.token.get_secret_value() if settings.token else None
            self._service = await self._exit.enter_async_context(Client(settings.url, token))
            return self
        async with AsyncExitStack() as opening:
            if settings.redis_url is not None:
                await reached(settings.redis_url)
            else:
                stack = await opening.enter_async_context(stack_in_use(settings, workers=self._workers))
                settings = settings.model_copy(
                    update={"redis_url": stack.redis_url, "local": True, "temporary": not stack.stays}
                )
            assert settings.redis_url is not None
            self._service = await opening.enter_async_context(open_service(settings, settings.redis_url))
            self._exit = opening.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._service = None  # later calls are refused before any work begins
        await self._exit.aclose()

    @property
    def service(self) -> Service:
        """All operations of the service; with ``DEPUTIZE_URL`` those of its client."""
        if self._service is None:
            raise RuntimeError("it is not open; use it inside `async with Orchestrator() as orchestrator:`")
        return self._service

    async def upload(self, path: str | Path, *, ignored: bool = False, exclude: Sequence[str] = ()) -> str:
        """Sends an archive, or a directory as one, and returns the ``upload`` that a workspace names.

        ``workspace={"kind": "archive", "upload": await orchestrator.upload("project")}``. Of a directory it holds what
        a copy would: ``ignored`` and ``exclude`` are those of a workspace of the kind ``directory``.
        """
        archive = await asyncio.to_thread(pack, Path(path), ignored=ignored, exclude=exclude)
        with archive.file:
            return (await self.service.upload(archive.chunks(), archive.sha256)).upload.upload

    async def start(self, task: str | DelegationRequest, **fields: Unpack[RequestFields]) -> Delegation:
        """Submits a task and returns at once. ``fields`` are those of ``DelegationRequest``."""
        return (await self.service.create(_request(task, fields))).delegation

    @overload
    async def delegate(
        self, task: str | DelegationRequest, *, on_event: OnEvent | None = None, **fields: Unpack[RequestFields]
    ) -> ToolAgentResult: ...

    @overload
    async def delegate(
        self, task: str, *, output: type[Data], on_event: OnEvent | None = None, **fields: Unpack[RequestFields]
    ) -> Data: ...

    async def delegate(
        self,
        task: str | DelegationRequest,
        *,
        output: type[Any] | None = None,
        on_event: OnEvent | None = None,
        **fields: Unpack[RequestFields],
    ) -> Any:
        """Submits a task and returns its result. Cancelling the wait does not cancel the delegation.

        With an ``output`` type returns the data as ``output_as`` of the result does, also where a limit ended the run.
        """
        if output is not None:
            fields["output_schema"] = output
        result = await self.result((await self.start(task, **fields)).id, on_event)
        return result if output is None else result.output_as(output)

    async def gather(
        self,
        requests: Sequence[str | DelegationRequest],
        *,
        on_event: OnEvent | None = None,
        **fields: Unpack[RequestFields],
    ) -> list[ToolAgentResult]:
        """Submits several tasks, all or none. Returns their results in the order of the requests."""
        accepted = await self.service.create_many([_request(request, fields) for request in requests])
        results = [asyncio.ensure_future(self.result(delegation.id, on_event)) for delegation in accepted]
        try:
            return await asyncio.gather(*results)
        finally:  # one that failed must not leave the others waiting
            for each in results:
                each.cancel()

    async def follow(self, id: str, after: int = 0) -> AsyncGenerator[Envelope]:
        """Yields every event of a delegation, live, up to ``run_finished``."""
        async with aclosing(self.service.follow(id, after)) as events:
            async for envelope in events:
                yield envelope

    async def result(self, id: str, on_event: OnEvent | None = None) -> ToolAgentResult:
        """Waits for a delegation. Returns its result; an error has its id as ``delegation_id``, as the work goes on.

        Raises Conflict where it is paused.
        """
        try:
            following = follow_unless_paused(self.service, id, refuse_paused)
            async with aclosing(following) as events:
                async for envelope in events:
                    if on_event and isawaitable(returned := on_event(envelope)):
                        await returned
                    if isinstance(envelope.event, RunFinished):
                        break
            finished = await self.service.get(id)
        except DeputizeError as error:
            error.delegation_id = id
            raise
        assert finished.result is not None
        return finished.result

    async def continue_(
        self, id: str, text: str, limits: Limits | None = None, *, idempotency_key: str | None = None
    ) -> Delegation:
        """Goes on with a finished delegation: a new one over its conversation and its files, started at once."""
        return (await self.service.continue_(id, text, limits, idempotency_key=idempotency_key)).delegation

    async def retry(self, id: str, *, from_turn: int | None = None, idempotency_key: str | None = None) -> Delegation:
        """Hands the task of a finished delegation over again, as a new one, started at once.

        ``from_turn``: with the conversation and the files as they were before that turn of its run.
        """
        return (await self.service.retry(id, from_turn=from_turn, idempotency_key=idempotency_key)).delegation

    async def resume(self, id: str) -> Delegation:
        """Goes on with a paused delegation, which an ended stack left; without effect on another unfinished one."""
        return await self.service.resume(id)

    async def deliver(self, id: str, wanted: Deliver | Mapping[str, Any] | None = None) -> Delegation:
        """Pushes what a finished delegation changed in its clone, as its request or ``wanted`` asks; at most once."""
        return await self.service.deliver(id, _validated(Deliver, wanted) if isinstance(wanted, Mapping) else wanted)

    async def webhooks(self, delegation: str | None = None) -> list[Notification]:
        """Returns the notifications of a delegation's webhook, or those of all that have not been delivered."""
        return await self.service.webhooks(delegation)

    async def redeliver(self, id: str) -> None:
        """Sends all notifications of a delegation again, under the same ids."""
        await self.service.redeliver(id)

    async def merge(
        self,
        ids: Sequence[str],
        *,
        verify: Sequence[VerifyItem | Mapping[str, Any]] = (),
        dry_run: bool = False,
        **fields: Unpack[MergeFields],
    ) -> MergeReport:
        """Merges the results of finished delegations over the same files, and waits for the checks of the merged files.

        All of them or, where the report has ``conflicts``, none. ``report.result.verification`` is the verdict, and
        ``report.result.merge.incompatible`` names what fails the checks together. The merge is a delegation: it can be
        delivered, and merged with others.
        """
        asked = {**fields, "ids": ids, "verify": verify, "dry_run": dry_run}
        report = await self.service.merge(_validated(MergeRequest, asked))
        if report.delegation is None:
            return report
        await self.result(report.delegation.id)
        return report.model_copy(update={"delegation": await self.service.get(report.delegation.id)})

    async def permissions(self, delegation: str | None = None) -> list[PermissionRequest]:
        """Returns the calls that wait for a person, the oldest first; of a delegation and those below it, or all."""
        return await self.service.permissions(delegation)

    async def answer_permission(
        self,
        id: str,
        outcome: PermissionOutcome | str,
        *,
        reason: str | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        """Answers a call that waits; ``outcome`` is also an alias: ``approve``, ``deny``. A second answer: Conflict."""
        try:
            parsed = parse_outcome(outcome)
        except ValueError as error:
            raise Invalid(str(error)) from None
        await self.service.answer_permission(id, parsed, reason=reason, arguments=arguments)

    async def send(self, id: str, text: str) -> str:
        """Sends a message, which the model reads before its next turn; its id is that of the receipt, ``message_read``.

        Raises Conflict for a finished delegation.
        """
        return (await self.service.send(id, text)).message_id

    async def wrap_up(self, id: str, text: str = "") -> str:
        """Asks a delegation to end with one last turn for its report, without further tool calls; idempotent."""
        return (await self.service.send(id, text, MessageMode.WRAP_UP)).message_id

    async def cancel(self, id: str) -> Delegation:
        """Requests cancellation; idempotent."""
        return await self.service.cancel(id)


def _request(task: str | DelegationRequest, given: RequestFields) -> DelegationRequest:
    if isinstance(task, DelegationRequest):
        return task
    return _validated(DelegationRequest, {**given, "task": task}).located_in(Path())


def _validated(kind: type[R], given: Mapping[str, Any]) -> R:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        mistakes = explain(error, kind)
        detail = "; ".join(f"{each['pointer'].lstrip('/')}: {each['detail']}" for each in mistakes)
        raise Invalid(detail, mistakes) from None


def _blocking(
    operation: Callable[Concatenate[Orchestrator, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncOrchestrator, P], T]:
    """Returns the operation as one whose caller's thread waits for it."""

    @wraps(operation)
    def wait(self: SyncOrchestrator, /, *args: P.args, **fields: P.kwargs) -> T:
        return self._run(lambda: operation(self._orchestrator, *args, **fields))  # pyright: ignore[reportPrivateUsage]

    return wait


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
        self._exit = ExitStack()
        self._portal: BlockingPortal | None = None

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            portal = opening.enter_context(start_blocking_portal(name="deputize"))
            opening.enter_context(portal.wrap_async_context_manager(self._orchestrator))
            self._exit, self._portal = opening.pop_all(), portal
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._exit.close()
        finally:
            self._portal = None

    upload = _blocking(Orchestrator.upload)
    start = _blocking(Orchestrator.start)
    continue_ = _blocking(Orchestrator.continue_)
    retry = _blocking(Orchestrator.retry)
    resume = _blocking(Orchestrator.resume)
    deliver = _blocking(Orchestrator.deliver)
    webhooks = _blocking(Orchestrator.webhooks)
    redeliver = _blocking(Orchestrator.redeliver)
    merge = _blocking(Orchestrator.merge)
    permissions = _blocking(Orchestrator.permissions)
    answer_permission = _blocking(Orchestrator.answer_permission)
    send = _blocking(Orchestrator.send)
    wrap_up = _blocking(Orchestrator.wrap_up)
    cancel = _blocking(Orchestrator.cancel)

    @overload
    def delegate(
        self, task: str | DelegationRequest, *, on_event: EventCallback | None = None, **fields: Unpack[RequestFields]
    ) -> ToolAgentResult: ...

    @overload
    def delegate(
        self, task: str, *, output: type[Data], on_event: EventCallback | None = None, **fields: Unpack[RequestFields]
    ) -> Data: ...

    def delegate(
        self, task: Any, *, output: Any = None, on_event: EventCallback | None = None, **fields: Unpack[RequestFields]
    ) -> Any:
        """Submits a task and returns its result, with an ``output`` type the data as an instance of it."""
        given: Any = {**fields, "output": output}
        return self._with_events(lambda put: self._orchestrator.delegate(task, on_event=put, **given), on_event)

    def gather(
        self,
        requests: Sequence[str | DelegationRequest],
        *,
        on_event: Callable[[Envelope], None] | None = None,
        **fields: Unpack[RequestFields],
    ) -> list[ToolAgentResult]:
        """Submits several tasks, all or none. Returns their results in the order of the requests."""
        return self._with_events(lambda put: self._orchestrator.gather(requests, on_event=put, **fields), on_event)

    def result(self, id: str, on_event: Callable[[Envelope], None] | None = None) -> ToolAgentResult:
        """Waits for a delegation. Returns its result."""
        return self._with_events(lambda put: self._orchestrator.result(id, put), on_event)

    def follow(self, id: str, after: int = 0) -> Generator[Envelope]:
        """Yields every event of a delegation, live, up to ``run_finished``."""
        events = self._orchestrator.follow(id, after)
        try:
            while (envelope := self._run(lambda: anext(events, None))) is not None:
                yield envelope
        finally:
            if self._portal is not None:
                self._run(events.aclose)

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
        if self._portal is None:
            raise RuntimeError("it is not open; use it inside `with SyncOrchestrator() as orchestrator:`")
        return self._portal.start_task_soon(work)
