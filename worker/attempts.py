"""The resources of one attempt: its share of the worker, its open files and connections, and its loop."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from ..shared.connection import REDIS_ERRORS, retried
from ..shared.errors import Conflict, ErrorType, Fenced, ToolError
from ..shared.events import Envelope, ProgressMade, Replied, RunRetried
from ..shared.facts import Trust
from ..shared.log import log
from ..shared.markup import HarmlessText, harmless
from ..shared.request import GitWorkspace
from ..shared.runs.record import TOOLS, TRUST, UPSTREAMS, Claim, fields_of, first_files, nothing_to_continue, trust_of
from ..shared.runs.spend import caps_of
from ..shared.settings import ModelSettings
from ..shared.workspaces import delete
from .core.conversation import Conversation, current_entries
from .core.earlier_attempts import given_up_because, interrupted_because
from .core.ledger import Ledger
from .core.loop import Loop
from .core.model_calls import ModelCalls
from .core.prompt import first_message, system_prompt
from .core.repetition import Repetition
from .core.resources import RunOutputs
from .core.run_context import RunContext, not_executed
from .core.run_contracts import Trace
from .core.tool_calls import ToolCalls
from .fleet.gate import EndpointWait, PrefixWait
from .fleet.inbox import Inbox
from .fleet.lease import StopReason, StopSignal
from .models.base import Model
from .permission import Approval, PermissionRequests
from .policy import PolicyContext, within
from .policy.trust import ReadSources
from .sandbox.bubblewrap import MOUNT, Sandbox
from .sandbox.project_tools import NO_TOOLS
from .services import Services
from .spending import DaySpending
from .subagents import Children, Inheritance, SubagentRunner
from .threads import run_in_thread, run_short
from .toolkit.offer import RunOffer
from .toolkit.run_tools import RunTools, open_tools
from .tools.context import SUBMIT, ToolResult
from .tools.naming import call_names
from .workspace.artifacts import Artifacts
from .workspace.manifest import Deadline
from .workspace.patches import MAX_PATCH_BYTES, Facts, with_masked_binaries
from .workspace.workspace import Workspace

ENDING_SECONDS = 20.0
"""Seconds for the comparison of a run's files with their original state."""
HURRIED_SECONDS = 5.0
"""The same limit, from the time the run is asked to stop."""


def of_files(facts: Facts, *, known: bool = True) -> dict[str, Any]:
    """Returns the result's fields about files. ``known``: whether these could be read."""
    return {
        "files_modified": [change.path for change in facts.changes],
        "file_changes": [*facts.changes],
        "truncated": bool(facts.left_out) or not known,
        "left_out": [*facts.left_out, *facts.not_copied],
        "ignored_files": [*facts.ignored],
        "ignored_count": facts.ignored_count,
    }


async def collect_outputs(
    workspace: Workspace,
    stop: StopSignal,
    seconds: float = ENDING_SECONDS,
    *,
    hurried: float = HURRIED_SECONDS,
    restored: Collection[str] = (),
    most: int = sys.maxsize,
    mask: Callable[[str], str] = str,
) -> tuple[RunOutputs, Facts]:
    """Collects the outputs from the workspace within the time limit; a request to stop shortens it to ``hurried``.

    ``restored``: paths that checks have put back; ``most``: bytes of patch and artifacts; ``mask``: for binary files.
    """
    deadline = Deadline(seconds)

    async def hurry_when_stopped() -> None:
        await stop.wait()
        deadline.shorten(hurried)

    def collect() -> tuple[RunOutputs, Facts]:
        artifacts = Artifacts(workspace.files)
        latest = artifacts.latest_versions()
        kept = fields_of(latest, artifacts.contents(latest, most))
        facts = with_masked_binaries(workspace.compare(deadline, min(MAX_PATCH_BYTES, most), restored), mask)
        return RunOutputs(of_files(facts), facts.patch, latest, kept, workspace.disk_bytes()), facts

    hurry = asyncio.create_task(hurry_when_stopped())
    try:
        return await run_short(workspace.files.is_local, collect)
    finally:
        hurry.cancel()
        await asyncio.wait({hurry})


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


async def files_left(services: Services, claim: Claim) -> Workspace | None:
    """Opens the workspace of the earlier attempts, for an attempt that ends before it opened one itself.

    Returns None where nothing can have changed. Raises ``OSError`` where files may have changed but are unreachable.
    """
    if claim.is_first:
        return None
    try:
        return await Workspace.open(claim.id, services.settings.workspaces)
    except FileNotFoundError:
        if claim.touched_files:
            raise
        return None


async def discard_files(services: Services, claim: Claim, check_fence: Callable[[], Awaitable[None]]) -> None:
    """Deletes what the failed try left, before this one begins: its conversation knows nothing of it.

    Without a history no worker has begun it. A merge begins anew with each attempt. ``check_fence`` raises ``Fenced``
    for an attempt that comes too late.
    """
    folder = services.settings.workspaces / claim.id
    again = claim.past.retries or (claim.request.merges and not claim.is_first)
    if not again or claim.history or not await run_in_thread(folder.exists):
        return
    await check_fence()
    aside = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}")
    await run_in_thread(lambda: delete(folder.rename(aside)))


class Attempt:
    """One attempt at one delegation: the ``Resources`` of its ``Run``."""

    def __init__(self, claim: Claim, services: Services, stop: StopSignal) -> None:
        emit = services.emitter(claim, lambda: stop.set(StopReason.FENCED))
        self.services = services
        self.stop = stop
        self.inbox = Inbox(claim, emit.emit, emit.set)
        self.reading = ReadSources(lambda trust: emit.set({TRUST: trust}), claim.kept.get(TRUST, Trust()))
        self.context = RunContext.of(
            claim,
            emit,
            self.inbox,
            self.reading,
            report_step=partial(services.progress.update, claim.id),
            free_slot=services.free_slot,
            room=lambda more: services.lacking_room(emit.stored + more),
        )
        self.children = Children(self.context, services)
        self.requests = PermissionRequests(self.context, services.store.redis, services.leases.bus, services.settings)
        self.spending = DaySpending(self.context, services.pipe, caps_of(services.settings.spend, claim.request.labels))
        self.worker = services.name
        self.given_up = given_up_because(claim, services.settings.max_attempts)
        self.retry_seconds = services.retry_seconds
        self.retention_seconds = services.settings.retention_seconds
        self.facts: Facts | None = None
        """The changes of the files; None before the end, and where these could not be compared."""
        self._offer: RunOffer | None = None
        self._workspace: Workspace | None = None
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

    def trace(self) -> Trace | None:
        return self.services.trace(self.context.claim, self.context.emit.mask)

    def open_inbox(self, on_wrap_up: Callable[[], None]) -> None:
        self.inbox.open(self.services.store.redis, self.services.wrap_up_seconds, on_wrap_up)

    async def prepare(self) -> None:
        await discard_files(self.services, self.context.claim, self.children.check_fence)
        self.context.claim, self._continued = await with_continued(self.services, self.context.claim)

    async def events(self) -> Sequence[Envelope]:
        # The lease will lapse, and the next attempt begins where this one did.
        try:
            return await self.services.store.events(self.context.claim.id)
        except REDIS_ERRORS as error:
            raise Fenced from error

    async def model(self) -> Model | None:
        if self.context.claim.request.merges:
            return None
        model = await self.services.model(asked := self.context.claim.request.model)
        self.context.note_model(model.name, self.services.settings.table_of(asked).platform)
        self.context.emit.model = self.services.label_of(model, asked)
        self.context.meter.set_price(model, self.spending.caps)
        return model

    @property
    def is_remote(self) -> bool:
        return isinstance(self.context.claim.request.workspace, GitWorkspace)

    async def open_files(self) -> None:
        self._offer = await self.services.offer(self.context.claim)
        most = self._offer.profile.disk_bytes
        earlier = await first_files(self.services.store.redis, self.context.claim.request, self.services.store.get)
        self._workspace = await self.services.workspace(self.context.claim, earlier, most, self.report_progress)
        self._workspace.snapshots.turn = lambda: self.context.meter.turns

    async def set_up(self) -> None:
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
                restored = self.context.verification.restored if self.context.verification else ()
                found = collect_outputs(self._workspace, self.stop, restored=restored, most=most, mask=mask)
                outputs, self.facts = await found
                return outputs
            finally:
                self.context.file_turns = self._workspace.snapshots.history.turns
        except OSError as error:
            log.warning("the files of this run cannot be read", exc_info=error)
            why = f"{error.strerror or error}: {error.filename or self.services.settings.workspaces}"
            self.context.report_error(f"which files changed is not known to {self.worker}: {why}", "workspace")
            return RunOutputs(of_files(Facts(), known=False))

    def close(self) -> None:
        if self._workspace is not None:
            self._workspace.close()

    @asynccontextmanager
    async def loop(self, model: Model) -> AsyncGenerator[Loop]:
        """Opens the run's sandbox and tools and yields its loop; when the block ends, none of their processes is alive.

        Raises ``Refused`` for a request that names tools that do not exist.
        """
        run = self.context
        conversation, model = self._conversation(model)
        await self.children.recall()
        self.reading.commands_reach_hosts = bool(self.offer.profile.allowed_hosts)
        self.reading.begin(await self._inherited_trust())
        tools = open_tools(
            run.claim,
            self.offer,
            self.workspace,
            self._project,
            depth_left=self.services.settings.tools.max_depth - run.claim.depth,
            warn=partial(run.report_error, kind="tools_missing"),
            report=partial(run.report_error, kind="limit"),
            hide=run.emit.mask.add,
        )
        async with tools as run_tools:
            run.emit.set(run_tools.kept)
            if run.claim.request.tool_call_style == "xml":
                self.reading.tags = tuple(run_tools.kit)
            policy = await self._policy(run_tools.sandbox.broken)
            yield Loop(
                run=run,
                conversation=conversation,
                model_calls=self._model_calls(model, conversation, run_tools),
                tool_calls=self._tool_calls(policy, conversation, run_tools),
                repetition=Repetition() if self.services.settings.loop_detection else None,
            )

    @property
    def _table(self) -> ModelSettings:
        return self.services.settings.table_of(self.context.claim.request.model)

    async def _inherited_trust(self) -> Trust:
        """Returns what those had read who wrote the task, and the conversation that the run continues."""
        claim, redis = self.context.claim, self.services.store.redis
        if TRUST in claim.kept:
            return claim.kept[TRUST]
        trust = Trust(neutralized=self._upstreams().places)
        for report in json.loads(claim.kept.get(UPSTREAMS, "[]")):
            trust = trust.plus(Trust(tainted_by=report.get("taintedBy", [])).read_from(report["delegationId"]))
        if parent := claim.request.parent_id:
            trust = (await retried(partial(trust_of, redis, parent))).handed_on()
        if earlier := claim.request.builds_on:
            trust = trust.plus(await retried(partial(trust_of, redis, earlier)))
        return trust

    def _upstreams(self) -> HarmlessText:
        """Returns the reports on the delegations that this one waited for, as the model reads them."""
        claim = self.context.claim
        tags = [tool.name for tool in self.offer.tools] if claim.request.tool_call_style == "xml" else []
        return harmless(claim.kept.get(UPSTREAMS, ""), tags)

    def _conversation(self, model: Model) -> tuple[Conversation, Model]:
        """Returns the conversation, and the model in the tool-call style of the request."""
        claim, store, translate = self.context.claim, self.context.emit.store_message, None
        if claim.request.tool_call_style == "xml":
            from .xml_calls.model import XmlCalls  # few runs write their calls as text

            model = XmlCalls(model)
            translate = model.translate
        task = first_message(claim.request, self._upstreams().noted)
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
        for entry in self._continued:  # now this run's own; with the new task it is one write, as nothing is awaited
            store(entry)
        if self._continued and not claim.request.from_turn:
            if calls := conversation.unanswered(0):
                results = [not_executed("the delegation ended before") for _ in calls]
                conversation.answer(zip(calls, results, strict=True), "\n\n".join(task))
            else:
                conversation.ask(*task)
        return conversation, model

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
            ),
            shared=PrefixWait(services.prefixes, run.emit.emit, partial(run.idle, "shared_prefix")),
            count=services.status.count,
            spending=self.spending,
            max_output_tokens=self._table.max_output or services.settings.max_output_tokens,
            cached="cache_control" not in self._table.lacks,
        )

    def _tool_calls(self, policy: PolicyContext, conversation: Conversation, tools: RunTools) -> ToolCalls:
        run, services = self.context, self.services
        kit = {name: tool for name, tool in tools.kit.items() if name != SUBMIT}
        inheritance = Inheritance(run.claim, services.settings, kit, self.workspace.path)
        subagents = SubagentRunner(run, services, self.children, inheritance, conversation.unanswered)
        return ToolCalls(
            run=run,
            kit=tools.kit,
            context=replace(tools.context, subagents=subagents),
            approval=Approval(policy, self.requests, run.steps, self.reading),
            ledger=Ledger(
                run.emit,
                run.claim.ledger,
                interrupted_because(run.claim),
                again=run.claim.past.lost + run.claim.past.stalls > 0,
                stalled=run.claim.past.stalled and bool(conversation.unanswered(0)),
            ),
            before_effects=self.workspace.keep_start,
            after_effects=partial(self._after_effects, tools.sandbox),
            after_turn=partial(self._after_turn, tools.sandbox),
        )

    async def _after_effects(self, sandbox: Sandbox, step: str, result: ToolResult) -> ToolResult:
        removed = await sandbox.bounds.growth.check() if sandbox.bounds else ""
        most = await sandbox.bounds.most_on_disk() if sandbox.bounds else self.offer.profile.disk_bytes
        await self._note_files(step)
        self.context.meter.note_disk(await self.workspace.size(most), most)
        return result.but(ToolError(ErrorType.LIMIT_REACHED, removed)) if removed else result

    async def _note_files(self, step: str = "") -> None:
        """Takes a snapshot of the files, if any changed: the end of this step reports what."""
        changes = await self.workspace.note_changes(step, self.context.emit.mask.text)
        self.context.note_files(step, changes.fields if changes else {}, self.workspace.snapshots.history.turns)

    async def _after_turn(self, sandbox: Sandbox) -> None:
        await self.requests.close()  # of calls that did not wait, because the result was handed in before
        if any(sandbox.shells):  # which change files at any time
            await self._note_files()

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
        return replace(own, above=[within(own, parent.request, depth) for depth, parent in enumerate(parents)])
