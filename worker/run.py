"""One run: builds its parts, supervises the loop, and always cleans up and reports a result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from pydantic_core import to_json

from shared import log as logs
from shared.delegation import Progress, TerminationReason, ToolAgentResult
from shared.errors import Fenced, Misconfigured, ModelUnavailable, Refused, WorkspaceLost
from shared.events import ErrorSeen, Heartbeat, RunFinished, RunResumed, RunStarted
from shared.log import log
from shared.runs.record import Claim
from shared.text import clip
from shared.wire import now
from worker.attempts import files_left, given_up, ledger_of, recall_steps, resumed_because, settle_steps
from worker.compaction import Window
from worker.emit import Emitter
from worker.fleet.lease import StopReason, StopSignal
from worker.history import History
from worker.limits import LimitReached, Meter, PromptBound, Repetition, check_price
from worker.loop import Loop
from worker.model_call import ModelCall
from worker.models.base import Model
from worker.models.xml_calls.model import XmlCalls
from worker.outcome import RunOutcome, RunOutputs, collect_outputs
from worker.policy import PolicyContext
from worker.prompt import first_message, system_prompt
from worker.sandbox.bubblewrap import MOUNT
from worker.services import Services
from worker.steps import StepLog
from worker.subagents.children import Children
from worker.subagents.waiting import Waiting
from worker.threads import EXIT_EXCEPTIONS
from worker.toolkit.run_tools import RunTools, open_tools
from worker.workspace.workspace import Workspace

HEARTBEAT_SECONDS = 10.0
MAX_DETAILS_CHARS = 32_000

T = TypeVar("T")


class _CancelledError(Exception):
    """The delegation was cancelled on request."""


class Run:
    """One attempt at one delegation."""

    def __init__(
        self, claim: Claim, services: Services, stop: StopSignal, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        self.claim = claim
        self.services = services
        self.stop = stop
        self.heartbeat_seconds = heartbeat_seconds
        self.emit = Emitter(services.pipe, claim, services.settings.secrets, lambda: stop.set(StopReason.FENCED))
        self.steps = StepLog(self.emit, partial(services.progress.say, claim.id))
        self.meter = Meter.restored(claim.limits, None, claim.checkpoint)
        self.children = Children(claim, services, self.emit, Waiting(services.waiting, self.emit))
        self.errors: list[str] = []
        self.reaped: list[str] = []
        self.given_up = claim.lost >= services.settings.max_attempts
        self.workspace: Workspace | None = None
        self.loop: Loop | None = None

    async def carry_out(self) -> ToolAgentResult | None:
        """Runs to the end; returns the result, stored and published, or None where another worker owns the run."""
        logs.delegation.set(self.claim.id)
        heartbeat = asyncio.create_task(self._beat(), name=f"heartbeat {self.claim.id}")
        try:
            outcome = await self._work()
            if self.loop is None and self.claim.attempt > 1:
                await settle_steps(self.steps, self.services.store, self.claim)
            await self._end_children()
            outputs = await self._outputs()
            result = self._result(outcome, outputs)
            await self._finish(result, outputs)
            return result
        except Fenced:
            log.warning("this attempt lost its lease and stops")
            return None
        finally:
            heartbeat.cancel()
            self.emit.close()
            if self.workspace is not None:
                self.workspace.close()

    async def _work(self) -> RunOutcome:
        if self.claim.cancelled:
            return RunOutcome(TerminationReason.CANCELLED, "Cancelled while it waited for another worker.")
        if self.given_up:
            return RunOutcome(TerminationReason.WORKER_LOST, self._report_error(given_up(self.claim), "worker_lost"))
        try:
            async with self._parts() as loop:
                self.loop = loop
                await self._announce(loop)
                return await self._watch(loop)
        except Refused as error:
            return RunOutcome(TerminationReason.REFUSED, self._report_error(error.detail, "refused"))
        except WorkspaceLost as error:
            return RunOutcome(TerminationReason.WORKER_LOST, self._report_error(str(error), "worker_lost"))
        except (ModelUnavailable, Misconfigured) as error:
            return RunOutcome(TerminationReason.MODEL_UNAVAILABLE, self._report_error(str(error), "model_unavailable"))
        except (Fenced, *EXIT_EXCEPTIONS):
            raise
        except BaseException as error:  # whatever it is, the caller gets a result with the error
            if self.emit.left:
                raise asyncio.CancelledError from error  # handed over: a cleanup that fails is no result
            log.exception("the run failed inside")
            return RunOutcome(TerminationReason.ERROR, self._report_error(f"internal error: {error!r}", "error"))

    @asynccontextmanager
    async def _parts(self) -> AsyncGenerator[Loop]:
        """Opens the parts of the run, used by this run alone; closed when the block ends."""
        request, services = self.claim.request, self.services
        model = await services.model(request.model)
        self.meter = Meter.restored(self.claim.limits, model.price(), self.claim.checkpoint)
        check_price(self.claim.limits, model)
        self.workspace = await services.workspace(self.claim)
        history = History(self.claim.history, self.emit.keep)
        if not history.messages:
            history.ask(first_message(request))
        await self.children.recall(self.meter)
        tools = open_tools(self.claim, services, self.workspace, self.children, warn=self._missing, hide=self.emit.hide)
        async with tools as run_tools:
            self.reaped = run_tools.context.sandbox.reaped
            self.emit.set(run_tools.kept)
            self.children.equip(run_tools.kit, self.workspace.path, lambda: history.unanswered(self.meter.turns))
            yield self._loop(model, run_tools, history, self.workspace)

    def _loop(self, model: Model, run_tools: RunTools, history: History, workspace: Workspace) -> Loop:
        settings = self.services.settings
        return Loop(
            task=first_message(self.claim.request),
            model_call=self._model_call(model),
            window=Window(settings.context_tokens or model.window(), self.claim.checkpoint.get("window", (0, 0))),
            system=system_prompt(MOUNT, skills="get_skill" in run_tools.kit),
            specs=run_tools.specs,
            kit=run_tools.kit,
            policy_context=PolicyContext(
                self.claim.request.approval_mode, run_tools.context.sandbox.broken, settings.tools.allowed_hosts
            ),
            context=run_tools.context,
            history=history,
            meter=self.meter,
            emit=self.emit,
            steps=self.steps,
            ledger=ledger_of(self.claim, self.emit, history),
            repetition=Repetition(run_tools.polled) if settings.loop_detection else None,
            after_effects=workspace.note_changes,
            checkpoint=self._checkpoint,
        )

    def _model_call(self, model: Model) -> ModelCall:
        bound = PromptBound(self.claim.limits)
        if self.claim.request.tool_call_style == "xml":
            model = XmlCalls(model)
            bound = PromptBound(self.claim.limits, model.translate)
        return ModelCall(model, self.meter, bound, self.emit, self._checkpoint)

    async def _announce(self, loop: Loop) -> None:
        claim = self.claim
        if claim.attempt == 1:
            event = RunStarted(
                worker=self.services.name, model=loop.model_call.model.name, tools=list(loop.kit), limits=claim.limits
            )
        else:
            self.steps.turn = self.meter.turns
            await recall_steps(self.steps, self.services.store, claim)
            event = RunResumed(worker=self.services.name, from_turn=self.meter.turns, reason=resumed_because(claim))
        self.emit.emit(event)

    async def _watch(self, loop: Loop) -> RunOutcome:
        """Runs the loop under its time limit and stop signals; a limit is followed by a final turn without tools."""
        try:
            reason = await self._until_stopped(loop.run(), self.meter.time_left)
            return RunOutcome(reason, loop.last_words)
        except LimitReached as limit:
            return await self._summarize(loop, limit)
        except TimeoutError:
            return await self._summarize(loop, self.meter.out_of_time())
        except _CancelledError:
            loop.settle("the delegation was cancelled")
            return RunOutcome(TerminationReason.CANCELLED, loop.last_words)

    async def _summarize(self, loop: Loop, limit: LimitReached) -> RunOutcome:
        loop.last_words, earlier = "", loop.last_words
        await self._end_children()
        try:
            await self._until_stopped(loop.summarize(limit), self.meter.time_for_summary)
        except (TimeoutError, LimitReached, ModelUnavailable, _CancelledError) as error:
            log.info("no summary turn: %s", error)
        words = loop.last_words or f"Stopped: {limit}. {len(self.steps.ended)} steps were made. {earlier}".strip()
        return RunOutcome(limit.reason, words)

    async def _until_stopped(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Awaits the work; cancels it at its time limit or on a stop signal, and waits until it has ended.

        Raises ``TimeoutError``, ``_CancelledError`` or ``Fenced``, and whatever the work raises.
        """
        doing = asyncio.create_task(work, name=f"loop {self.claim.id}")
        signal = asyncio.create_task(self.stop.wait())
        try:
            await asyncio.wait({doing, signal}, timeout=max(seconds, 0), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.emit.leave()
            raise
        finally:
            signal.cancel()
            if not doing.done():
                doing.cancel()
                await asyncio.wait({doing})
        if self.stop.reason is StopReason.FENCED:
            raise Fenced
        if not doing.cancelled():
            return doing.result()
        if self.stop.reason is StopReason.CANCELLED:
            raise _CancelledError
        raise TimeoutError

    async def _outputs(self) -> RunOutputs:
        """Collects the outputs, whatever the reason of the end. Where they cannot be read, the errors say why."""
        try:
            self.workspace = self.workspace or await files_left(self.services, self.claim)
            return await collect_outputs(self.workspace, self.stop)
        except OSError as error:
            log.warning("the files of this run cannot be read", exc_info=error)
            why = f"{error.strerror or error}: {error.filename or self.services.settings.workspaces}"
            self._report_error(f"which files changed is not known to {self.services.name}: {why}", "workspace")
            return RunOutputs()

    async def _end_children(self) -> None:
        for id in await self.children.end(self.meter):
            self._report_error(f"subagent {id} was told to stop, but did not say yet what it used", "subagent")

    def _missing(self, message: str) -> None:
        self._report_error(message, "tools_missing")

    def _report_error(self, message: str, kind: str) -> str:
        self.errors.append(message)
        self.emit.emit(ErrorSeen(message=message, kind=kind))
        return message

    def _checkpoint(self) -> None:
        kept = self.meter.checkpoint() | ({"window": self.loop.window.billed} if self.loop else {})
        self.emit.set({"checkpoint": to_json(kept).decode(), "progress": self._progress().to_json()})

    def _progress(self) -> Progress:
        return Progress(
            turn=self.meter.turns,
            tool_calls=self.meter.tool_calls,
            last_tool=self.steps.last_tool,
            elapsed_ms=round(self.meter.elapsed * 1000),
            cost_usd=self.meter.usage.cost_usd,
        )

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.heartbeat_seconds)
            progress = self._progress()
            self.emit.emit(Heartbeat.model_validate(progress.model_dump()))
            self.emit.set({"progress": progress.to_json()})  # for clients that poll

    def _result(self, outcome: RunOutcome, outputs: RunOutputs) -> ToolAgentResult:
        return ToolAgentResult(
            delegation_id=self.claim.id,
            status=outcome.status,
            termination_reason=outcome.reason,
            summary=outcome.summary,
            details=clip(self.steps.details(), MAX_DETAILS_CHARS),
            **outputs.of_files,
            errors=[*self.errors, *self.steps.errors()],
            tool_call_count=self.meter.tool_calls + (0 if self.loop else len(self.claim.ledger)),
            turn_count=self.meter.turns,
            execution_time_ms=round(self.meter.elapsed * 1000),
            attempts=self.claim.attempt - self.given_up,
            usage=self.meter.usage,
            artifacts=list(outputs.artifacts),
            reaped=self.reaped,
        )

    async def _finish(self, result: ToolAgentResult, outputs: RunOutputs) -> None:
        """Writes the result and ``run_finished`` and releases the lease, in one write, the last one of the run."""
        fields = {
            "status": result.status.value,
            "result": self.emit.masked_json(result.to_json()),
            "finished": now().isoformat(),
            "progress": self._progress().to_json(),
        }
        if outputs.patch is not None:
            fields["patch"] = self.emit.masked(outputs.patch)
        artifacts = {name: self.emit.masked(text) for name, text in outputs.kept.items()}
        await self.emit.finish(RunFinished(result=result), fields, self.services.settings.retention_seconds, artifacts)
