"""``Orchestrator``, the Python interface: all operations of the service, and those that wait for results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from functools import wraps
from hashlib import sha256
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, get_origin, overload

from anyio import move_on_after

from ..shared import traceparent
from ..shared.checks import VerifyItem
from ..shared.compound_requests import MergeRequest
from ..shared.delegation import Data, Delegation, Status, ToolAgentResult
from ..shared.errors import Conflict, DeputizeError, Invalid, KeyReused, Misconfigured
from ..shared.events import Envelope, RunFinished
from ..shared.limits import LimitFields, Limits
from ..shared.message import MessageMode
from ..shared.patches.merge import Planned
from ..shared.permission import PermissionOutcome
from ..shared.redis_access import reached
from ..shared.request import DelegationRequest, Deliver
from ..shared.settings import Settings
from .apply import ApplyOptions, directory_here, take_over
from .checked_arguments import CheckedArguments
from .client import Client
from .delegate_tool import DelegateTool, ToolAnswer, delegate_tool
from .delegations import open_service
from .large_copies import NotedCopies
from .operation import Operation
from .operations import MergeReport, Operations, Service, follow_unless_paused, refuse_paused
from .packing import pack
from .request_fields import MergeFields, SubmitFields, ToolFields, check_counts, each_of, request_of, validated
from .results_in_order import ended, in_order
from .stack import stack_in_use

if TYPE_CHECKING:
    from .evaluation.evaluation import Evaluation

T = TypeVar("T")
P = ParamSpec("P")

EventCallback = Callable[[Envelope], None]
OnEvent = EventCallback | Callable[[Envelope], Awaitable[None]]
"""Called with every event of a delegation, text deltas, progress and errors included; it may be async."""

MAP_CONCURRENCY = 100
"""How many delegations of one ``map`` are unfinished at most, unless it is called with another number."""
CANCEL_SECONDS = 10.0
"""How long the cancelled call of a tool waits until the service has accepted that for its delegation."""


def _of_service(
    operation: Callable[Concatenate[Service, P], T],
) -> Callable[Concatenate[Orchestrator, P], T]:
    """Returns an operation of the service as one of the orchestrator."""

    @wraps(operation)
    def call(self: Orchestrator, /, *args: P.args, **fields: P.kwargs) -> T:
        return getattr(self.service, operation.__name__)(*args, **fields)

    return call


class Orchestrator(Operations):
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
        self._copies = NotedCopies(self._settings)
        self._exit = AsyncExitStack()
        self._service: Service | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        settings, self._loop = self._settings, asyncio.get_running_loop()
        if settings.url:
            token = settings.token.get_secret_value() if settings.token else None
            self._service = CheckedArguments(await self._exit.enter_async_context(Client(settings.url, token)))
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
            service = await opening.enter_async_context(open_service(settings, settings.redis_url))
            self._service = CheckedArguments(service)
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
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("it was opened in another event loop; open one in each loop, or use SyncOrchestrator")
        return self._service

    async def _perform(self, operation: Operation, given: dict[str, Any]) -> Any:
        return await getattr(self.service, operation.name)(**given)

    async def upload(self, path: str | Path, *, ignored: bool = False, exclude: Sequence[str] = ()) -> str:
        """Sends an archive, or a directory as one, and returns the ``upload`` that a workspace names.

        ``workspace={"kind": "archive", "upload": await orchestrator.upload("project")}``. Of a directory it holds what
        a copy would: ``ignored`` and ``exclude`` are those of a workspace of the kind ``directory``.
        """
        archive = await asyncio.to_thread(pack, Path(path), ignored=ignored, exclude=exclude)
        with archive.file:
            return (await self.service.upload(archive.chunks(), archive.sha256)).upload.upload

    async def start(self, task: str | DelegationRequest, **fields: Unpack[SubmitFields]) -> Delegation:
        """Submits a task and returns at once. ``fields`` are those of ``DelegationRequest``, and ``traceparent``."""
        with _in_trace(fields):
            (request,) = await self._copies.noted([request_of(task, fields)])
            return (await self.service.create(request)).delegation

    @overload
    async def delegate(
        self, task: str | DelegationRequest, *, on_event: OnEvent | None = None, **fields: Unpack[SubmitFields]
    ) -> ToolAgentResult: ...

    @overload
    async def delegate(
        self, task: str, *, output: type[Data], on_event: OnEvent | None = None, **fields: Unpack[SubmitFields]
    ) -> Data: ...

    async def delegate(
        self,
        task: str | DelegationRequest,
        *,
        output: type[Any] | None = None,
        on_event: OnEvent | None = None,
        **fields: Unpack[SubmitFields],
    ) -> Any:
        """Submits a task and returns its result. Cancelling the wait does not cancel the delegation.

        With an ``output`` type returns the data as ``output_as`` of the result does, also where a limit ended the run.
        """
        if output is not None:
            kind: Any = output
            if not (isinstance(kind, type) or get_origin(kind)):
                raise Invalid(f"output is {kind!r}, and no type; a JSON Schema goes to output_schema")
            fields["output_schema"] = output
        result = await self.result((await self.start(task, **fields)).id, on_event)
        return result if output is None else result.output_as(output)

    async def gather(
        self,
        requests: Sequence[str | DelegationRequest],
        *,
        on_event: OnEvent | None = None,
        **fields: Unpack[SubmitFields],
    ) -> list[ToolAgentResult]:
        """Submits several tasks, all or none. Returns their results in the order of the requests.

        An error of the wait has those that are there as ``results``.
        """
        if not each_of("requests", requests):
            return []
        with _in_trace(fields):
            asked = await self._copies.noted([request_of(request, fields) for request in requests])
            accepted = await self.service.create_many(asked)
        return await in_order(self.result(delegation.id, on_event) for delegation in accepted)

    async def map(
        self,
        requests: Iterable[str | DelegationRequest],
        *,
        concurrency: int = MAP_CONCURRENCY,
        on_event: OnEvent | None = None,
        **fields: Unpack[SubmitFields],
    ) -> list[ToolAgentResult]:
        """Runs each task once, however often it is called. Returns the results in the order of the requests.

        A call within a day of another one, also after a crash, submits only tasks that are new or changed, whose
        delegation was not a success, or whose record was removed. Those that are under way are waited for (a paused one
        goes on), and the others have their results. A task is known by all fields of its request: of a ``directory`` by
        its path, not by its files (an ``upload`` is named by its content). Another ``idempotency_key`` runs all again.

        At most ``concurrency`` are unfinished at once. Results may be failures, as those of ``gather``; an error of the
        wait has the results that are there as ``results``.
        """
        each_of("requests", requests)
        check_counts(concurrency=concurrency)
        gate = asyncio.Semaphore(concurrency)

        async def once(request: DelegationRequest, key: str) -> ToolAgentResult:
            async with gate:
                return await self._result(await self._submitted(request, key), on_event, self.service.resume)

        with _in_trace(fields):
            asked = await self._copies.noted([request_of(request, fields) for request in requests])
            keyed = [_keyed(request) for request in asked]
            waits = {key: asyncio.ensure_future(once(request, key)) for key, request in dict(keyed).items()}
        return await in_order(waits[key] for key, _ in keyed)

    async def evaluate(
        self,
        tasks: Iterable[str | DelegationRequest],
        *,
        runs: int = 5,
        concurrency: int = MAP_CONCURRENCY,
        **fields: Unpack[SubmitFields],
    ) -> Evaluation:
        """Runs each task several times. Returns how often that was a success, with intervals and costs.

        A call within a day of another one runs only what has not ended yet, as ``map`` does. ``Comparison`` compares
        the evaluations of two configurations.
        """
        from .evaluation.evaluation import Evaluation, TaskRuns  # few programs evaluate

        each_of("tasks", tasks)
        check_counts(runs=runs, concurrency=concurrency)
        gate = asyncio.Semaphore(concurrency)

        async def once(request: DelegationRequest, run: int) -> ToolAgentResult:
            async with gate:
                key = f"{_keyed(request)[0]}-run-{run}"
                return await self._result(await self._submitted(request, key, once=True), None, self.service.resume)

        with _in_trace(fields):
            asked = await self._copies.noted([request_of(task, fields) for task in tasks])
            results = await in_order(once(request, run) for request in asked for run in range(runs))
        each = enumerate(asked)
        return Evaluation.of([TaskRuns(at + 1, one.title, results[at * runs :][:runs]) for at, one in each])

    async def _submitted(self, request: DelegationRequest, key: str, *, once: bool = False) -> str:
        """Returns the id of the last delegation for the key; where that was not a success, of a new one.

        Not ``once`` there is a delegation for it: then how it ended does not count.
        """
        number = 0
        while True:
            number += 1
            with suppress(KeyReused):  # its record was removed
                tried = request.model_copy(update={"idempotency_key": f"{key}-{number}"})
                accepted = await self.service.create(tried)
                status = accepted.delegation.status
                if not accepted.replayed or once or status is Status.SUCCEEDED or not status.finished:
                    return accepted.delegation.id

    async def result(self, id: str, on_event: OnEvent | None = None) -> ToolAgentResult:
        """Waits for a delegation. Returns its result; an error has its id as ``delegation_id``, as the work goes on.

        Raises Conflict where it is paused.
        """
        return await self._result(id, on_event, refuse_paused)

    async def _result(
        self, id: str, on_event: OnEvent | None, on_pause: Callable[[str], Awaitable[object]]
    ) -> ToolAgentResult:
        try:
            following = follow_unless_paused(self.service, id, on_pause)
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

    def as_tool(self, **fields: Unpack[ToolFields]) -> DelegateTool[Awaitable[ToolAnswer]]:
        """Returns a tool that delegates, for the model of another program; it has a form for each framework.

        The model writes ``task``, ``context`` and ``expectedOutcome``, but for those among ``fields``, which hold for
        each delegation. ``name`` and ``description`` are those of the tool.
        """
        return delegate_tool(self._finished, fields)

    async def _finished(self, request: DelegationRequest) -> Delegation:
        """Submits a task and returns the delegation when it has ended. A wait that is cancelled cancels it, too."""
        starting = asyncio.ensure_future(self.service.create(request))
        try:
            id = (await asyncio.shield(starting)).delegation.id
            await self.result(id)
        except asyncio.CancelledError:
            with move_on_after(CANCEL_SECONDS, shield=True), suppress(DeputizeError):
                await self.service.cancel((await starting).delegation.id)
            raise
        return await self.service.get(id)

    async def as_completed(self, ids: Iterable[str]) -> AsyncGenerator[ToolAgentResult]:
        """Waits for several delegations, and yields the result of each one when it ends.

        What ends the wait for one of them, as with ``result``, ends that for all.
        """
        results = [asyncio.ensure_future(self.result(id)) for id in dict.fromkeys(each_of("ids", ids))]
        try:
            for each in asyncio.as_completed(results):
                yield await each
        finally:
            await ended(results)

    async def continue_(
        self, id: str, text: str, limits: Limits | LimitFields | None = None, *, idempotency_key: str | None = None
    ) -> Delegation:
        """Goes on with a finished delegation: a new one over its conversation and its files, started at once."""
        asked: Any = limits  # the service reads them
        return (await self.service.continue_(id, text, asked, idempotency_key=idempotency_key)).delegation

    async def retry(self, id: str, *, from_turn: int | None = None, idempotency_key: str | None = None) -> Delegation:
        """Hands the task of a finished delegation over again, as a new one, started at once.

        ``from_turn``: with the conversation and the files as they were before that turn of its run.
        """
        return (await self.service.retry(id, from_turn=from_turn, idempotency_key=idempotency_key)).delegation

    async def deliver(self, id: str, wanted: Deliver | Mapping[str, Any] | None = None) -> Delegation:
        """Pushes what a finished delegation changed in its clone, as its request or ``wanted`` asks; at most once."""
        return await self.service.deliver(id, validated(Deliver, wanted) if isinstance(wanted, Mapping) else wanted)

    async def merge(
        self,
        ids: Sequence[str],
        *,
        verify: str | Sequence[VerifyItem | Mapping[str, Any] | str] = (),
        dry_run: bool = False,
        **fields: Unpack[MergeFields],
    ) -> MergeReport:
        """Merges the results of finished delegations over the same files, and waits for the checks of the merged files.

        All of them or, where the report has ``conflicts``, none. ``report.result.verification`` is the verdict, and
        ``report.result.merge.incompatible`` names what fails the checks together. The merge is a delegation: it can be
        delivered, and merged with others.
        """
        asked = {**fields, "ids": ids, "verify": verify, "dry_run": dry_run}
        report = await self.service.merge(validated(MergeRequest, asked))
        if report.delegation is None:
            return report
        await self.result(report.delegation.id)
        return report.model_copy(update={"delegation": await self.service.get(report.delegation.id)})

    async def answer_permission(
        self,
        id: str,
        outcome: PermissionOutcome | str,
        *,
        reason: str | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        """Answers a call that waits; ``outcome`` is also an alias: ``approve``, ``deny``. A second answer: Conflict."""
        asked: Any = outcome  # the service reads it
        await self.service.answer_permission(id, asked, reason=reason, arguments=arguments)

    async def send(self, id: str, text: str) -> str:
        """Sends a message, which the model reads before its next turn; its id is that of the receipt, ``message_read``.

        Raises Conflict for a finished delegation.
        """
        return (await self.service.send(id, text)).message_id

    async def wrap_up(self, id: str, text: str = "") -> str:
        """Asks a delegation to end with one last turn for its report, without further tool calls; idempotent."""
        return (await self.service.send(id, text, MessageMode.WRAP_UP)).message_id

    async def apply(
        self,
        id: str,
        into: str | Path,
        *,
        check: bool = False,
        reverse: bool = False,
        with_ignored: bool = False,
        with_protected: bool = False,
    ) -> list[Planned]:
        """Merges what a finished delegation changed into a directory of this machine, and returns each change.

        All of it or, where that would lose other work, nothing. ``check`` only returns what would be changed,
        ``reverse`` takes the changes back, ``with_ignored`` takes new files that .gitignore names, too,
        ``with_protected`` those that the checks have put back.

        Raises:
            Conflict: The delegation is not finished, or files would lose other work; the message names them.
            Invalid: It is not a directory.
        """
        folder = directory_here(into)
        how = ApplyOptions(check, reverse, with_ignored, with_protected)
        plan = await take_over(self.service, await self.service.get(id), folder, how)
        if plan.refused:
            files = "; ".join(f"{path}: {why}" for path, why in sorted(plan.refused.items()))
            raise Conflict(f"nothing was changed in {folder}, because other work would be lost: {files}")
        return plan.applied

    follow = _of_service(Service.follow)
    follow_all = _of_service(Service.follow_all)
    file = _of_service(Service.file)
    not_ready = _of_service(Service.not_ready)


def _keyed(request: DelegationRequest) -> tuple[str, DelegationRequest]:
    return f"map-{sha256(request.to_json().encode()).hexdigest()}", request


@contextmanager
def _in_trace(fields: SubmitFields) -> Generator[None]:
    """Lets the block be part of the trace that the fields name, if any, and takes it out of them. Raises Invalid."""
    text: Any = fields.pop("traceparent", None)
    if text is None:
        yield
        return
    if not (isinstance(text, str) and traceparent.parsed(text)):
        detail = "is not one of W3C Trace Context, such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        raise Invalid(f"traceparent: {detail}", [{"pointer": "/traceparent", "detail": detail}])
    with traceparent.part_of(text):
        yield
