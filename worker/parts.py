"""The parts of a run: each is made once, used by this run alone, and closed with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from ..shared.connection import retried
from ..shared.facts import Trust
from ..shared.runs.record import trust_of
from .attempts import go_on, interrupted_because
from .conversation import Conversation
from .fleet.gate import EndpointWait, PrefixWait
from .ledger import Ledger
from .limits import Repetition
from .loop import Loop
from .model_calls import ModelCalls, Spending
from .models.base import Model
from .permission.approval import Approval
from .permission.requests import PermissionRequests
from .policy import PolicyContext, within
from .prompt import first_message, system_prompt
from .run_context import RunContext
from .sandbox.base import Sandbox
from .sandbox.bubblewrap import MOUNT
from .sandbox.project_tools import ProjectTools
from .services import Services
from .subagents import Children, Inheritance, SubagentRunner
from .tool_calls import ToolCalls
from .toolkit.offer import RunOffer
from .toolkit.run_tools import RunTools, open_tools
from .workspace.workspace import Workspace
from .xml_calls.model import XmlCalls


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBuilder:
    """Makes the loop of one run from what the run is, what its worker has, and what it is offered."""

    run: RunContext
    services: Services
    offer: RunOffer
    children: Children
    workspace: Workspace
    project: ProjectTools
    spending: Spending

    @asynccontextmanager
    async def open(self, model: Model) -> AsyncGenerator[Loop]:
        """Opens the run's sandbox and tools and yields its loop; when the block ends, none of their processes is alive.

        Raises ``Refused`` for a request that names tools that do not exist.
        """
        run = self.run
        conversation, model = self._conversation(model)
        await self.children.recall()
        run.reading.commands_reach_hosts = bool(self.offer.profile.allowed_hosts)
        run.reading.begin(await self._inherited_trust())
        tools = open_tools(
            run.claim,
            self.offer,
            self.workspace,
            self.project,
            depth_left=self.services.settings.tools.max_depth - run.claim.depth,
            warn=partial(run.report_error, kind="tools_missing"),
            report=partial(run.report_error, kind="limit"),
            hide=run.emit.mask.add,
        )
        async with tools as run_tools:
            run.emit.set(run_tools.kept)
            if run.claim.request.tool_call_style == "xml":
                run.reading.tags = tuple(run_tools.kit)
            policy = await self._policy(run_tools.context.sandbox.broken)
            yield Loop(
                run=run,
                conversation=conversation,
                model_calls=self._model_calls(model, conversation, run_tools),
                tool_calls=self._tool_calls(policy, conversation, run_tools),
                repetition=Repetition() if self.services.settings.loop_detection else None,
            )

    async def _inherited_trust(self) -> Trust:
        """Returns what those had read who wrote the task, and the conversation that the run continues."""
        claim, redis = self.run.claim, self.services.store.redis
        if claim.trust is not None:
            return claim.trust
        trust = Trust()
        if parent := claim.request.parent_id:
            trust = (await retried(partial(trust_of, redis, parent))).handed_on()
        if earlier := claim.request.builds_on:
            trust = trust.plus(await retried(partial(trust_of, redis, earlier)))
        return trust

    def _conversation(self, model: Model) -> tuple[Conversation, Model]:
        """Returns the conversation, and the model in the tool-call style of the request."""
        claim, translate = self.run.claim, None
        if claim.request.tool_call_style == "xml":
            model = XmlCalls(model)
            translate = model.translate
        conversation = Conversation(
            claim.history or claim.continued,
            self.run.emit.store_message,
            task=first_message(claim.request),
            window=self.services.settings.context_tokens or model.window(),
            billed=claim.checkpoint.get("window", (0, 0)),
            translate=translate,
            retries=claim.retries,
        )
        if claim.continued:
            go_on(conversation, claim, self.run.emit.store_message)
        return conversation, model

    def _model_calls(self, model: Model, conversation: Conversation, tools: RunTools) -> ModelCalls:
        run, services = self.run, self.services
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
            conversation=conversation,
            wait=EndpointWait(services.outages, run.emit.emit, run.emit.set, lambda: run.meter.time_for_summary),
            shared=PrefixWait(services.prefixes, run.emit.emit, run.idle),
            count=services.status.count,
            spending=self.spending,
            max_output_tokens=services.settings.max_output_tokens,
        )

    def _tool_calls(self, policy: PolicyContext, conversation: Conversation, tools: RunTools) -> ToolCalls:
        run, services = self.run, self.services
        seconds = services.settings.permission_timeout_seconds
        requests = PermissionRequests(run, services.store.redis, services.leases.bus, seconds)
        inheritance = Inheritance(run.claim, services.settings, tools.kit, self.workspace.path)
        subagents = SubagentRunner(run, services, self.children, inheritance, conversation.unanswered)
        return ToolCalls(
            run=run,
            run_tools=replace(tools, context=replace(tools.context, subagents=subagents)),
            approval=Approval(policy, requests, run.steps, run.reading),
            ledger=Ledger(
                run.emit,
                run.claim.ledger,
                interrupted_because(run.claim),
                again=run.claim.lost > 0,
                stalled=run.claim.stalled and bool(conversation.unanswered(0)),
            ),
            after_effects=partial(self._after_effects, tools.context.sandbox),
        )

    async def _after_effects(self, sandbox: Sandbox) -> None:
        most = await sandbox.bounds.most_on_disk() if sandbox.bounds else self.offer.profile.disk_bytes
        await self.run.note_files(self.workspace, lasting=any(sandbox.shells))
        self.run.meter.outgrown = most if await self.workspace.exceeds(most) else 0

    async def _policy(self, broken: str | None) -> PolicyContext:
        claim = self.run.claim
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
