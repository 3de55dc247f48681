"""The resources of one attempt: its share of the worker, its open files and connections, and its loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..shared.connection import REDIS_ERRORS, retried
from ..shared.delegation import Usage
from ..shared.errors import Conflict, Fenced
from ..shared.events import Envelope, ProgressMade, Replied, RunRetried
from ..shared.facts import Trust, Verification
from ..shared.log import log
from ..shared.markup import HarmlessText, harmless
from ..shared.request import GitWorkspace
from ..shared.runs.caps import caps_of
from ..shared.runs.record import (
    FILE_TURNS,
    MODEL,
    OWNER,
    REFUSALS,
    TOOLS,
    TRACE,
    TRUST,
    UPSTREAMS,
    Claim,
    FileTurns,
    first_files,
    nothing_to_continue,
)
from ..shared.settings import ModelSettings
from ..shared.traceparent import trace_id_of
from .contracts import StopReason, StopSignal
from .core.conversation import Conversation, current_entries
from .core.earlier_attempts import given_up_because, interrupted_because
from .core.hooks import TurnHooks
from .core.ledger import Ledger
from .core.loop import Loop
from .core.model_calls import ModelCalls
from .core.prompt import first_message, system_prompt
from .core.repetition import Repetition
from .core.resources import RunOutputs
from .core.run_context import RunContext, not_executed
from .core.tool_calls import ToolCalls
from .fleet.admission.keys import KeyedModel
from .fleet.admission.line import Order
from .fleet.admission.wait import EndpointWait
from .fleet.gate import PrefixWait
from .fleet.inbox import Inbox
from .instructions.part import ProjectInstructions
from .models.base import Model
from .models.caching import Retention
from .permission import Approval, PermissionRequests
from .policy import PolicyContext, within
from .policy.trust import ReadSources
from .run_files import collect_outputs, discard_files, files_left, of_files
from .sandbox.bubblewrap import MOUNT, Sandbox
from .sandbox.project_tools import NO_TOOLS
from .services import Services
from .spending import ReservedMoney
from .toolkit.offer import RunOffer
from .toolkit.run_tools import RunTools, open_tools
from .tools.naming import call_names
from .web.refusals import Refusals
from .workspace.patches import Facts
from .workspace.workspace import Workspace

if TYPE_CHECKING:
    from .economy.part import Economy


async def with_continued(services: Services, claim: Claim) -> tuple[Claim, tuple[bytes, ...]]:
    """Returns the claim with the kit, and the conversation, of the delegation that it continues or repeats in part.

    Raises ``Conflict`` where these are gone.
    """
    request, store = claim.request, services.store
    earlier = request.builds_on
    if earlier is None or claim.history:
        return claim, ()
    entries, tools = await store.conversation(earlier)
    if not entries:
        raise Conflict(nothing_to_continue(earlier))
    if request.from_turn:
        entries = entries_before(entries, await store.events(earlier), request.from_turn)
    continued = tuple(current_entries([entry.encode() for entry in entries]))
    return replace(claim, kept={**({TOOLS: tools} if tools else {}), **claim.kept}), continued


def entries_before(entries: Sequence[str], events: Sequence[Envelope], turn: int) -> Sequence[str]:
    """Returns the entries of a conversation that precede the reply of this turn. Each reply has an event."""
    turns: list[int] = []
    for envelope in events:
        if isinstance(envelope.event, RunRetried):
            turns.clear()
        elif isinstance(envelope.event, Replied):
            turns.append(envelope.event.turn)
    replies = [at for at, entry in enumerate(entries) if entry.startswith('{"role":"assistant"')]
    own = zip(replies[len(replies) - len(turns) :], turns, strict=True)
    return entries[: next((at for at, of in own if of >= turn), len(entries))]


class Attempt:
    """One attempt at one delegation: the ``Resources`` of its ``Run``."""

    def __init__(self, claim: Claim, services: Services, stop: StopSignal) -> None:
        emit = services.emitter(claim, lambda: stop.set(StopReason.FENCED))
        emit.room = services.lacking_room
        self.services = services
        self.stop = stop
        self.inbox = Inbox(claim, emit.emit, emit.set)
        self.reading = ReadSources(self._keep_trust, claim.kept.get(TRUST, Trust()))
        self.context = RunContext.of(
            claim, emit, report_step=partial(services.progress.update, claim.id), free_slot=services.free_slot
        )
        self.refusals = Refusals(claim.kept.get(REFUSALS, ()), emit.mask.text, emit.set)
        self.instructions = ProjectInstructions(self.context, services.settings, services.store.redis, self.reading)
        self.requests = PermissionRequests(self.context, services.store.redis, services.leases.bus, services.settings)
        caps = caps_of(services.settings.spend, claim.request.labels)
        self.spending = ReservedMoney(self.context, services.pipe, caps)
        self.economy = self._economy()
        """What asks the model in message batches; None in a run that does not."""
        self.trace = services.trace(claim, emit.mask)
        """The spans of this attempt; None where no traces are sent."""
        self._traceparent = claim.kept.get(TRACE, "")
        if self.trace:
            emit.set(stored := self.trace.stored)
            self._traceparent = self._traceparent or stored[TRACE]
        self.worker = services.name
        self.given_up = given_up_because(claim, services.settings.max_attempts)
        self.retention_seconds = services.settings.retention_seconds
        self.facts: Facts | None = None
        """The changes of the files; None before the end, and where these could not be compared."""
        self.verification: Verification | None = None
        """The result of the checks; None without checks, and where none of them was reached."""
        self._keys: KeyedModel | None = None  # the model, where it has several keys
        self._offer: RunOffer | None = None
        self._workspace: Workspace | None = None
        self._sandbox: Sandbox | None = None
        self._file_turns = claim.file_turns
        self._session: str | None = None
        """The conversation that the root of the run tree comes from."""
        self._project = NO_TOOLS
        self._continued: tuple[bytes, ...] = ()
        """The conversation that it goes on with, until it has a history of its own."""

    @property
    def offer(self) -> RunOffer:
        assert self._offer is not None, "the files are not open"
        return self._offer

    @property
    def workspace(self) -> Workspace:
        assert self._workspace is not None, "the files are not open"
        return self._workspace

    @property
    def sandbox(self) -> Sandbox:
        assert self._sandbox is not None, "the tools are not open"
        return self._sandbox

    def _keep_trust(self, trust: Trust) -> None:
        self.context.trust = trust
        self.context.emit.set({TRUST: trust.to_json()})

    @property
    def trace_id(self) -> str:
        return trace_id_of(self._traceparent)

    def trace_of(self, step: str) -> str:
        """Returns the ``traceparent`` of what a step submits; "" where the run is part of no trace."""
        return self.trace.traceparent_of(step) if self.trace else self._traceparent

    def open_inbox(self, on_wrap_up: Callable[[], None]) -> None:
        self.inbox.open(self.services.store.redis, self.services.wrap_up_seconds, on_wrap_up)

    async def prepare(self) -> None:
        await discard_files(self.services, self.context.claim, self.context.emit.check_fence)
        self.context.claim, self._continued = await with_continued(self.services, self.context.claim)

    async def events(self) -> Sequence[Envelope]:
        # The lease will lapse, and the next attempt begins where this one did.
        try:
            return await self.services.store.events(self.context.claim.id)
        except REDIS_ERRORS as error:
            raise Fenced from error

    async def model(self) -> Model | None:
        if not self.context.claim.request.needs_model:
            return None
        model = await self.services.model(asked := self.context.claim.request.model)
        self.context.emit.set({MODEL: model.name})  # for reports of cost
        if self.trace:
            self.trace.name_model(model.name, self.services.settings.table_of(asked).platform)
        self.context.emit.model = self.services.label_of(model, asked)
        if self.economy:
            model = self.economy.of(model)
        elif isinstance(model, KeyedModel):
            self._keys = model
        self.context.meter.set_price(model, await self.spending.first_cap(self.services.store.redis))
        return model

    def _economy(self) -> Economy | None:
        request = self.context.claim.request
        if not (request.economy and request.needs_model):
            return None
        from .economy.part import Economy  # few runs can wait so long

        open_model = partial(self.services.model, request.model)
        return Economy(self.context, self.services.batches, self.inbox, open_model, self.spending.again)

    @property
    def is_remote(self) -> bool:
        return isinstance(self.context.claim.request.workspace, GitWorkspace)

    async def open_files(self) -> None:
        self._offer = await self.services.offer(self.context.claim)
        most = self._offer.profile.disk_bytes
        earlier = await first_files(self.services.store.redis, self.context.claim.request, self.services.store.get)
        check_fence = self.context.emit.check_fence
        opening = self.services.workspace(self.context.claim, earlier, most, self.report_progress, check_fence)
        self._workspace = await opening
        self._workspace.snapshots.turn = lambda: self.context.meter.turns

    async def set_up(self) -> None:
        await self.instructions.load(self.workspace)
        self._project = await self.offer.project_tools(self.context.claim, self.workspace, self.report_progress)

    def report_progress(self, message: str) -> None:
        self.context.emit.emit(ProgressMade(message=message))

    async def outputs(self) -> RunOutputs:
        try:
            if self._workspace is None:
                self._workspace = await files_left(self.services, self.context.claim)
            if self._workspace is None:
                return RunOutputs(of_files(Facts()))
            self._workspace.snapshots.turn = lambda: self.context.meter.turns
            mask, most = self.context.emit.mask.text, self.services.most_output
            try:
                restored = self.verification.restored if self.verification else ()
                found = collect_outputs(self._workspace, self.stop, restored=restored, most=most, mask=mask)
                outputs, self.facts = await found
                return outputs
            finally:
                self._file_turns = self._workspace.snapshots.history.turns
        except OSError as error:
            log.warning("the files of this run cannot be read", exc_info=error)
            why = f"{error.strerror or error}: {error.filename or self.services.settings.workspaces}"
            self.context.report_error(f"which files changed is not known to {self.worker}: {why}", "workspace")
            return RunOutputs(of_files(Facts(), known=False))

    def close(self) -> None:
        self.facts = None  # with the patch, which would stay until a collection
        if self.trace:
            self.trace.close()
        if self._workspace is not None:
            self._workspace.close()

    @asynccontextmanager
    async def loop(self, model: Model, hooks: TurnHooks) -> AsyncGenerator[Loop]:
        """Opens the run's sandbox and tools and yields its loop; when the block ends, none of their processes is alive.

        Raises ``Refused`` for a request that names tools that do not exist.
        """
        run = self.context
        conversation, model = self._conversation(model)
        tools = open_tools(
            run.claim,
            self.offer,
            self.workspace,
            self._project,
            depth_left=self.services.settings.tools.max_depth - run.claim.depth,
            warn=partial(run.report_error, kind="tools_missing"),
            report=partial(run.report_error, kind="limit"),
            hide=run.emit.mask.add,
            on_refused=self.refusals.note,
            on_used=self.report_progress,
        )
        async with tools as run_tools:
            run.emit.set(run_tools.kept)
            self._sandbox = run_tools.sandbox
            policy = await self._policy(run_tools.sandbox.broken)
            yield Loop(
                run=run,
                inbox=self.inbox,
                conversation=conversation,
                model_calls=self._model_calls(model, conversation, run_tools),
                tool_calls=self._tool_calls(policy, conversation, run_tools, hooks),
                repetition=Repetition() if self.services.settings.loop_detection else None,
                before_turn=hooks.before_turn,
            )

    @property
    def _table(self) -> ModelSettings:
        return self.services.settings.table_of(self.context.claim.request.model)

    def upstreams(self) -> HarmlessText:
        """Returns the reports on the delegations that this one waited for, as the model reads them."""
        return harmless(self.context.claim.kept.get(UPSTREAMS, ""), self._tags)

    @property
    def _tags(self) -> list[str]:
        """Names of elements that are calls where the model writes its calls as text."""
        is_text = self.context.claim.request.tool_call_style == "xml"
        return [tool.name for tool in self.offer.tools] if is_text else []

    def _conversation(self, model: Model) -> tuple[Conversation, Model]:
        """Returns the conversation, and the model in the tool-call style of the request."""
        claim, store, translate = self.context.claim, self.context.emit.store_message, None
        if claim.request.tool_call_style == "xml":
            from .xml_calls.model import XmlCalls  # few runs write their calls as text

            model = XmlCalls(model)
            translate = model.translate
        task = first_message(claim.request, self.upstreams().noted, self.instructions.text(self._tags))
        conversation = Conversation(
            claim.history or self._continued,
            store,
            task=task,
            window=self._table.context_window or self.services.settings.context_tokens or model.window(),
            billed=claim.checkpoint.get("window", (0, 0)),
            translate=translate,
            retries=claim.past.retries,
            model=model.name,
        )
        conversation.ended = claim.checkpoint.get("ended", False)
        for entry in self._continued:  # now this run's own; with the new task it is one write, as nothing is awaited
            store(entry)
        if self._continued and not claim.request.from_turn:
            more = first_message(claim.request, self.upstreams().noted)  # it has the instructions already
            if calls := conversation.unanswered(0):
                results = [not_executed("the delegation ended before") for _ in calls]
                conversation.answer(zip(calls, results, strict=True), "\n\n".join(more))
            else:
                conversation.ask(*more)
        return conversation, model

    def _count(self, model: Model, usage: Usage) -> None:
        self.services.status.count(usage)
        if endpoint := model.endpoint_id:
            self.services.outages.pace(endpoint).used(usage)

    @property
    def _order(self) -> Order:
        """Whose turn the run's model calls take: the root's owner, else its conversation, else the root itself."""
        claim = self.context.claim
        named = ("owner", claim.kept.get(OWNER)), ("session", self._session)
        owner = next((f"{kind}:{name}" for kind, name in named if name), claim.path[0])
        return Order(owner, priority=claim.request.priority)

    def _model_calls(self, model: Model, conversation: Conversation, tools: RunTools) -> ModelCalls:
        run, services = self.context, self.services
        return ModelCalls(
            run=run,
            model=model,
            system=system_prompt(
                MOUNT,
                skills="get_skill" in tools.kit,
                own=run.claim.request.system_prompt,
                hosts=tuple(self.offer.profile.allowed_hosts),
                services=tuple(map(str, self._project.services)),
            ),
            tools=tools.specs,
            tool_names=call_names(tools.kit),
            conversation=conversation,
            wait=EndpointWait(
                services.outages,
                run.emit.emit,
                run.emit.set,
                run.meter.check_wait,
                run.claim.request.session_id or run.claim.path[0],
                self._order,
                has_other_key=lambda: bool(self._keys and self._keys.takes_requests),
                idle=partial(run.waits.reported, "budget") if run.claim.request.on_cap == "wait" else None,
            ),
            shared=PrefixWait(services.prefixes, run.emit.emit, partial(run.waits.without_clock, "shared_prefix")),
            count=partial(self._count, model),
            spending=self.spending,
            repeated=self.inbox.repeated,
            retention=Retention(hour=self.economy is not None),
            max_output_tokens=self._table.max_output or services.settings.max_output_tokens,
            cached="cache_control" not in self._table.lacks,
            choose=self._keys.choose if self._keys else lambda _: None,
        )

    def _tool_calls(
        self, policy: PolicyContext, conversation: Conversation, tools: RunTools, hooks: TurnHooks
    ) -> ToolCalls:
        run = self.context
        return ToolCalls(
            run=run,
            kit=tools.kit,
            context=tools.context,
            approval=Approval(policy, self.requests, run.steps, self.reading),
            ledger=Ledger(
                run.emit,
                run.claim.ledger,
                interrupted_because(run.claim),
                again=run.claim.past.lost + run.claim.past.stalls > 0,
                stalled=run.claim.past.stalled and bool(conversation.unanswered(0)),
            ),
            around=hooks.around,
        )

    async def note_files(self, step: str = "") -> None:
        """Takes a snapshot of the files, if any changed: the end of this step reports what."""
        changes = await self.workspace.note_changes(step, self.context.emit.mask.text)
        if changes and changes.fields:
            self.context.steps.changes[step] = changes.fields
        self._keep_turns(self.workspace.snapshots.history.turns)

    def _keep_turns(self, turns: FileTurns) -> None:
        if self._file_turns != turns:
            self._file_turns = turns
            self.context.emit.set({FILE_TURNS: self.stored_turns})

    @property
    def stored_turns(self) -> str:
        """Before which turns the files are known, as the record has it."""
        return self.context.emit.mask.json(self._file_turns.to_json())

    async def _policy(self, broken: str | None) -> PolicyContext:
        claim = self.context.claim
        own = PolicyContext(
            mode=claim.request.approval_mode,
            broken=broken,
            allowed_hosts=self.services.settings.tools.allowed_hosts,
            rules=self.services.rules,
            depth=claim.depth,
            labels=claim.request.labels,
            workspace=self.workspace.path,
        )
        parents = await retried(partial(self.services.store.many, claim.path[:-1]))
        self._session = (parents[0] if parents else claim).request.session_id
        return replace(own, above=[within(own, parent.request, depth) for depth, parent in enumerate(parents)])
