"""The parts of a run: each is made once, used by this run alone, and closed with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

from pydantic_core import to_json

from ..shared.delegation import Progress
from ..shared.events import ErrorSeen
from ..shared.facts import Trust
from ..shared.runs.cost import SPENT
from ..shared.runs.record import TRUST, Claim, trust_of
from ..shared.runs.turns import FILE_TURNS, FileTurns
from ..shared.text import clip
from .attempts import go_on, ledger_of
from .conversation import Conversation
from .emit import Emitter
from .fleet.outage import EndpointWait
from .fleet.shared_prefix import PrefixWait
from .limits import Meter, Repetition
from .loop import Loop
from .model_calls import ModelCalls
from .models.base import Model
from .models.caching import Retention
from .permission.approval import Approval
from .permission.requests import PermissionRequests
from .policy import PolicyContext, within
from .policy.trust import ReadSources
from .prompt import first_message, system_prompt
from .sandbox.base import Sandbox
from .sandbox.bubblewrap import MOUNT
from .sandbox.project_tools import ProjectTools
from .services import Services
from .spending import Spending
from .steps import StepLog
from .subagents.children import Children, retried
from .subagents.runner import SlotRelease, SubagentRunner
from .tool_calls import ToolCalls
from .toolkit.offer import RunOffer
from .toolkit.run_tools import RunTools, open_tools
from .workspace.workspace import Workspace
from .xml_calls.model import XmlCalls

MAX_DETAILS_CHARS = 32_000


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run has done so far, in all its phases, whether or not its loop has begun."""

    emit: Emitter
    meter: Meter
    steps: StepLog
    file_turns: FileTurns
    reading: ReadSources
    errors: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, claim: Claim, emit: Emitter, meter: Meter, steps: StepLog) -> Self:
        """Returns the state that earlier attempts left."""
        reading = ReadSources(lambda trust: emit.set({TRUST: trust}), claim.trust or Trust())
        return cls(emit, meter, steps, claim.file_turns, reading)

    def report_error(self, message: str, kind: str) -> str:
        """Publishes an error that the result will list, once, and returns its message."""
        if message not in self.errors:
            self.errors.append(message)
            self.emit.emit(ErrorSeen(message=message, kind=kind))
        return message

    @property
    def progress(self) -> Progress:
        return Progress(
            turn=self.meter.turns,
            tool_calls=self.meter.tool_calls,
            last_tool=self.steps.last_tool,
            elapsed_ms=round(self.meter.elapsed * 1000),
            cost_usd=self.meter.usage.cost_usd,
        )

    @property
    def counts(self) -> dict[str, str]:
        """Returns what was used so far, as fields of the record."""
        spent = {"progress": self.progress.to_json(), SPENT: self.meter.own.to_json()}
        return spent | {FILE_TURNS: self.file_turns.to_json()}

    @property
    def of_result(self) -> dict[str, Any]:
        """Returns the result's fields about what was done and read, and what it cost."""
        return {
            "details": clip(self.emit.masked(self.steps.details()), MAX_DETAILS_CHARS),
            "errors": [*self.errors, *self.steps.errors()],
            **self.steps.counts,
            "turn_count": self.meter.turns,
            "execution_time_ms": round(self.meter.elapsed * 1000),
            "usage": self.meter.usage,
            "trust": self.reading.trust,
        }

    async def note_files(self, workspace: Workspace, *, lasting: bool = False) -> None:
        """Notes that this turn changed files, if it did; ``lasting``: a command in the background may change more."""
        if await workspace.note_changes() or lasting:
            self.file_turns.note(self.meter.turns, lasting=lasting)

    def checkpoint(self, conversation: Conversation) -> Callable[[], None]:
        """Returns a function that stores, for the next attempt and for clients that poll, what was used so far."""

        def store() -> None:
            state = self.meter.checkpoint() | {"window": conversation.billed}
            self.emit.set({"checkpoint": to_json(state).decode(), **self.counts})

        return store


@dataclass(frozen=True, slots=True)
class LoopBuilder:
    """Makes the loop of one run from what the run and its worker have."""

    claim: Claim
    services: Services
    offer: RunOffer
    state: RunState
    children: Children
    workspace: Workspace
    project: ProjectTools
    spending: Spending | None = None

    @asynccontextmanager
    async def open(self, model: Model) -> AsyncGenerator[Loop]:
        """Opens the run's sandbox and tools and yields its loop; when the block ends, none of their processes is alive.

        Raises ``Refused`` for a request that names tools that do not exist.
        """
        conversation, model = self._conversation(model)
        await self.children.recall()
        self.state.reading.commands_reach_hosts = bool(self.offer.profile.allowed_hosts)
        self.state.reading.begin(await self._inherited_trust())
        tools = open_tools(
            self.claim,
            self.offer,
            self.workspace,
            self.project,
            depth_left=self.services.settings.tools.max_depth - self.claim.depth,
            warn=self._warn,
            report=self._report_limit,
            hide=self.state.emit.add_secrets,
        )
        async with tools as run_tools:
            self.state.emit.set(run_tools.kept)
            if self.claim.request.tool_call_style == "xml":
                self.state.reading.tags = tuple(run_tools.kit)
            approval = self._approval(await self._policy(run_tools.context.sandbox.broken))
            calls = self._model_calls(model, conversation, run_tools)
            yield self._loop(calls, self._with_subagents(run_tools, conversation), approval)

    async def _inherited_trust(self) -> Trust:
        """Returns what those had read who wrote the task, and the conversation that the run continues."""
        claim, redis = self.claim, self.services.store.redis
        if claim.trust is not None:
            return claim.trust
        trust = Trust()
        if parent := claim.request.parent_id:
            trust = (await retried(partial(trust_of, redis, parent))).handed_on()
        if earlier := claim.request.builds_on:
            trust = trust.plus(await retried(partial(trust_of, redis, earlier)))
        return trust

    def _warn(self, message: str) -> None:
        self.state.report_error(message, "tools_missing")

    def _report_limit(self, message: str) -> None:
        self.state.report_error(message, "limit")

    def _conversation(self, model: Model) -> tuple[Conversation, Model]:
        """Returns the conversation, and the model in the tool-call style of the request."""
        claim, translate = self.claim, None
        if claim.request.tool_call_style == "xml":
            model = XmlCalls(model)
            translate = model.translate
        conversation = Conversation(
            claim.history or claim.continued,
            self.state.emit.store_message,
            task=first_message(claim.request),
            window=self.services.settings.context_tokens or model.window(),
            billed=claim.checkpoint.get("window", (0, 0)),
            translate=translate,
            retries=claim.retries,
        )
        if claim.continued:
            go_on(conversation, claim, self.state.emit.store_message)
        return conversation, model

    def _with_subagents(self, tools: RunTools, conversation: Conversation) -> RunTools:
        """Returns the tools with subagents, which may have the same tools."""
        runner = SubagentRunner(
            self.claim,
            self.services,
            self.state.meter,
            self.children,
            SlotRelease(self.services.waiting, self.state.emit),
            kit=tools.kit,
            folder=self.workspace.path,
            open_calls=conversation.unanswered,
        )
        return replace(tools, context=replace(tools.context, subagents=runner))

    @contextmanager
    def _idle(self) -> Generator[None]:
        """Frees the run's slot and stops its clock while the block runs."""
        with SlotRelease(self.services.waiting, self.state.emit).waiting(), self.state.meter.paused():
            yield

    async def _after_effects(self, sandbox: Sandbox) -> None:
        most = await sandbox.bounds.most_on_disk() if sandbox.bounds else self.offer.profile.disk_bytes
        await self.state.note_files(self.workspace, lasting=any(sandbox.shells))
        self.state.meter.outgrown = most if await self.workspace.exceeds(most) else 0

    def _loop(self, model_calls: ModelCalls, tools: RunTools, approval: Approval) -> Loop:
        state, conversation = self.state, model_calls.conversation
        return Loop(
            conversation=conversation,
            model_calls=model_calls,
            tool_calls=ToolCalls(
                run_tools=tools,
                approval=approval,
                meter=state.meter,
                steps=state.steps,
                reading=state.reading,
                ledger=ledger_of(self.claim, state.emit, conversation),
                after_effects=partial(self._after_effects, tools.context.sandbox),
            ),
            meter=state.meter,
            steps=state.steps,
            repetition=Repetition() if self.services.settings.loop_detection else None,
            checkpoint=model_calls.checkpoint,
        )

    def _model_calls(self, model: Model, conversation: Conversation, tools: RunTools) -> ModelCalls:
        state = self.state
        system = system_prompt(
            MOUNT,
            skills="get_skill" in tools.kit,
            own=self.claim.request.system_prompt,
            hosts=tuple(self.offer.profile.allowed_hosts),
        )
        return ModelCalls(
            model,
            system,
            tools.specs,
            conversation,
            state.meter,
            state.emit,
            EndpointWait(self.services.outages, state.emit.emit, state.emit.set),
            PrefixWait(self.services.prefixes, state.emit.emit, self._idle),
            Retention(),
            state.checkpoint(conversation),
            self.services.count,
            self.spending,
            state.report_error,
            self.services.settings.max_output_tokens,
        )

    def _approval(self, policy: PolicyContext) -> Approval:
        services, emit = self.services, self.state.emit
        requests = PermissionRequests(
            self.claim,
            services.store.redis,
            services.leases.bus,
            emit,
            self._idle,
            services.settings.permission_timeout_seconds,
        )
        return Approval(policy, requests, self.state.steps, self.state.reading)

    async def _policy(self, broken: str | None) -> PolicyContext:
        request = self.claim.request
        own = PolicyContext(
            request.approval_mode,
            broken,
            self.services.settings.tools.allowed_hosts,
            rules=self.services.rules,
            depth=self.claim.depth,
            labels=request.labels,
            workspace=self.workspace.path,
        )
        parents = await retried(partial(self.services.store.many, self.claim.path[:-1]))
        return replace(own, above=[within(own, parent.request, depth) for depth, parent in enumerate(parents)])
