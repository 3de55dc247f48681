"""One run: supervises its loop, and always cleans up and reports a result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from ..shared import log as logs
from ..shared.delegation import TerminationReason, ToolAgentResult
from ..shared.errors import Fenced, Misconfigured, ModelUnavailable, Refused, WorkspaceLost
from ..shared.events import Heartbeat, ProgressMade, RunFinished, RunResumed, RunRetried, RunStarted
from ..shared.log import log
from ..shared.runs.cost import MODEL, SPENT
from ..shared.runs.disk import DISK
from ..shared.runs.record import Claim
from ..shared.runs.spend import caps_of
from ..shared.text import count
from ..shared.wire import now
from .attempts import (
    RunOutcome,
    RunOutputs,
    collect_outputs,
    discard_files,
    fields_of_next_try,
    files_left,
    given_up,
    next_try,
    recall_steps,
    resumed_because,
    settle_steps,
    with_continued,
)
from .emit import Emitter
from .fleet.lease import StopReason, StopSignal
from .limits import LimitReached, Meter
from .linux.system import exhausted
from .loop import Loop
from .models.base import Model
from .parts import LoopBuilder, RunState
from .services import Services
from .spending import Spending
from .steps import StepLog
from .subagents.children import Children
from .threads import EXIT_EXCEPTIONS
from .toolkit.offer import RunOffer
from .workspace.workspace import Workspace

HEARTBEAT_SECONDS = 10.0
CLOCK_SECONDS = 0.02
"""Seconds after which a clock that is stopped near its end is looked at again."""

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
        emit = Emitter(services.pipe, claim, services.settings.secrets, lambda: stop.set(StopReason.FENCED))
        meter = Meter.restored(claim.limits, claim.checkpoint, claim.elapsed)
        stop.elapsed = lambda: meter.elapsed
        if claim.ledger:  # calls of the turn under way may have changed files unseen
            claim.file_turns.note(meter.turns)
        steps = StepLog(emit, partial(services.progress.update, claim.id))
        self.state = RunState.of(claim, emit, meter, steps)
        self.children = Children(claim, services, emit, meter)
        caps = caps_of(services.settings.spend, claim.request.labels)
        self.spending = Spending(claim, services.pipe, meter, emit, caps) if caps else None
        self.given_up = claim.lost >= services.settings.max_attempts
        self.workspace: Workspace | None = None
        self.loop: Loop | None = None
        """None until the run begins to work."""

    async def execute(self) -> ToolAgentResult | None:
        """Runs to the end; returns the result, stored and published.

        Returns None where another worker owns the run, and where it is done again.
        """
        logs.delegation.set(self.claim.id)
        heartbeat = asyncio.create_task(self._beat(), name=f"heartbeat {self.claim.id}")
        try:
            outcome = (await self._work()).masked(self.state.emit.masked)
            if self.loop is None and not self.claim.is_first:
                await self._settle()
            await self._end_children()
            if again := next_try(self.claim, outcome, self.state.meter, self.services.retry_seconds):
                await self._retry(again)
                return None
            outputs = await self._outputs()
            result = self._result(outcome, outputs)
            await self._finish(result, outputs)
            return result
        except Fenced:
            log.warning("this attempt lost its lease and stops")
            return None
        finally:
            heartbeat.cancel()
            self.state.emit.close()
            if self.workspace is not None:
                self.workspace.close()

    async def _work(self) -> RunOutcome:
        if self.claim.cancelled:
            return RunOutcome(TerminationReason.CANCELLED, "Cancelled while it waited for another worker.")
        if self.given_up:
            return self._failure(TerminationReason.WORKER_LOST, given_up(self.claim))
        try:
            await discard_files(self.services, self.claim, self.children.check_fence)
            self.claim = await with_continued(self.services, self.claim)
            model = await self.services.model(self.claim.request.model)
            self.state.emit.set({MODEL: model.name})
            self.state.meter.set_price(model)
            if self.spending:
                self.spending.check(model)
            offer = await self.services.offer(self.claim)
            self.workspace = await self.services.workspace(self.claim, offer.profile.disk_bytes, self._report_progress)
            return await self._carry_out(model, self.workspace, offer)
        except Refused as error:
            return self._failure(TerminationReason.REFUSED, error.detail)
        except WorkspaceLost as error:
            return self._failure(TerminationReason.WORKER_LOST, str(error))
        except (ModelUnavailable, Misconfigured) as error:
            may_pass = isinstance(error, ModelUnavailable) and error.may_pass
            return self._failure(TerminationReason.MODEL_UNAVAILABLE, str(error), may_pass=may_pass)
        except (Fenced, *EXIT_EXCEPTIONS):
            raise
        except BaseException as error:  # the caller gets a result in every case, also after a defect of the worker
            if self.state.emit.handed_over:
                raise asyncio.CancelledError from error  # handed over: the next attempt reports the result
            log.exception("the run failed inside")
            return self._failure(TerminationReason.ERROR, exhausted(error) or f"internal error: {error!r}")

    async def _carry_out(self, model: Model, workspace: Workspace, offer: RunOffer) -> RunOutcome:
        preparing = offer.project_tools(self.claim, workspace, self._report_progress)
        try:
            project = await self._until_stopped(preparing, lambda: self.state.meter.time_for_summary)
        except TimeoutError:
            limit, when = self.state.meter.out_of_time(), " while the project was set up" * self.claim.is_first
            return RunOutcome(limit.reason, f"Stopped: {limit}{when}.")
        except _CancelledError:
            return RunOutcome(TerminationReason.CANCELLED, "Cancelled while the project was set up.")
        own = self.claim, self.services, offer, self.state, self.children, workspace, project, self.spending
        parts = LoopBuilder(*own)
        async with parts.open(model) as self.loop:
            await self._announce(self.loop)
            return await self._supervise(self.loop)

    async def _settle(self) -> None:
        """Counts the calls that earlier attempts left under way, and ends their steps: they are not gone on with."""
        self.state.meter.tool_calls += len(self.claim.ledger)
        await settle_steps(self.state.steps, self.services.store, self.claim)

    def _report_progress(self, message: str) -> None:
        self.state.emit.emit(ProgressMade(message=message))

    def _failure(self, reason: TerminationReason, message: str, *, may_pass: bool = True) -> RunOutcome:
        return RunOutcome(reason, self.state.report_error(message, reason.value), may_pass)

    async def _announce(self, loop: Loop) -> None:
        claim = self.claim
        if claim.is_first:
            event = RunStarted(
                worker=self.services.name,
                model=loop.model_calls.model.name,
                tools=list(loop.tool_calls.run_tools.kit),
                limits=claim.limits,
                further_tools=loop.tool_calls.run_tools.further,
            )
        else:
            self.state.steps.turn = self.state.meter.turns
            if self.state.meter.time_left > 0:
                await recall_steps(self.state.steps, self.services.store, claim)
            else:
                await self._settle()
            event = RunResumed(
                worker=self.services.name, from_turn=self.state.meter.turns, reason=resumed_because(claim)
            )
        self.state.emit.emit(event)
        self.state.emit.flush()  # callers wait for this sign that a worker has the run

    async def _supervise(self, loop: Loop) -> RunOutcome:
        """Runs the loop under its time limit and stop signals; a limit is followed by a final turn without tools."""
        try:
            await self._until_stopped(loop.run(), lambda: self.state.meter.time_left)
            return RunOutcome(TerminationReason.COMPLETED, loop.conversation.last_words)
        except LimitReached as limit:
            return await self._summarize(loop, limit)
        except TimeoutError:
            if error := loop.model_calls.wait.error:
                self.state.report_error(f"its time ended while it waited for the model's endpoint: {error}", "rate")
            return await self._summarize(loop, self.state.meter.out_of_time())
        except _CancelledError:
            loop.close_calls("the delegation was cancelled")
            return RunOutcome(TerminationReason.CANCELLED, loop.conversation.last_words)

    async def _summarize(self, loop: Loop, limit: LimitReached) -> RunOutcome:
        earlier, summary = loop.conversation.last_words, ""
        await self._end_children()
        try:
            summary = await self._until_stopped(loop.summarize(limit), lambda: self.state.meter.time_for_summary)
        except (TimeoutError, LimitReached, ModelUnavailable, _CancelledError) as error:
            log.info("no summary turn: %s", error)
        number = len(self.state.steps.ended)
        made = f"{count(number, 'step')} {'was' if number == 1 else 'were'} made."
        log_of_steps = f"Stopped: {limit}. {made} {earlier}".strip()
        return RunOutcome(limit.reason, summary or log_of_steps)

    async def _until_stopped(self, work: Coroutine[Any, Any, T], seconds_left: Callable[[], float]) -> T:
        """Awaits the work; cancels it at its time limit or on a stop signal, and waits until it has ended.

        ``seconds_left`` is called again when the time is over, because the run's clock may have been stopped. Raises
        ``TimeoutError``, ``_CancelledError`` or ``Fenced``, and whatever the work raises.
        """
        doing = asyncio.create_task(work, name=f"loop {self.claim.id}")
        signal = asyncio.create_task(self.stop.wait())
        try:
            while (seconds := seconds_left()) > 0:
                seconds = max(seconds, CLOCK_SECONDS)
                if (await asyncio.wait({doing, signal}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED))[0]:
                    break
        except asyncio.CancelledError:
            self.state.emit.hand_over()
            raise
        finally:
            signal.cancel()
            if not doing.done():
                doing.cancel()
                await asyncio.wait({doing})
            if not doing.cancelled():
                doing.exception()  # asked for in every case, else asyncio reports it
        if self.stop.reason is StopReason.FENCED:
            raise Fenced
        if not doing.cancelled():
            return doing.result()
        if self.stop.reason is StopReason.CANCELLED:
            raise _CancelledError
        raise TimeoutError

    async def _outputs(self) -> RunOutputs:
        """Collects the outputs in every case. Where they cannot be read, the result's errors contain the reason."""
        try:
            self.workspace = self.workspace or await files_left(self.services, self.claim)
            if self.workspace and self.loop and self.loop.tool_calls.interrupted:
                await self.state.note_files(self.workspace)
            return await collect_outputs(self.workspace, self.stop)
        except OSError as error:
            log.warning("the files of this run cannot be read", exc_info=error)
            why = f"{error.strerror or error}: {error.filename or self.services.settings.workspaces}"
            self.state.report_error(f"which files changed is not known to {self.services.name}: {why}", "workspace")
            return RunOutputs(known=False)

    async def _end_children(self) -> None:
        for id in await self.children.end():
            self.state.report_error(f"subagent {id} was cancelled, and has not reported its usage yet", "subagent")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.heartbeat_seconds)
            progress = self.state.progress
            self.state.emit.emit(Heartbeat.model_validate(progress.model_dump()))
            self.state.emit.set({"progress": progress.to_json()})  # for clients that poll

    def _result(self, outcome: RunOutcome, outputs: RunOutputs) -> ToolAgentResult:
        return ToolAgentResult(
            delegation_id=self.claim.id,
            status=outcome.status,
            termination_reason=outcome.reason,
            summary=outcome.summary,
            **self.state.of_result,
            **outputs.of_files,
            tool_call_count=self.state.meter.tool_calls,
            attempts=self.claim.attempt - self.given_up,
            artifacts=list(outputs.artifacts),
            reaped=self.loop.tool_calls.run_tools.context.sandbox.reaped if self.loop else [],
        )

    async def _retry(self, event: RunRetried) -> None:
        """Releases the run to its next try, in one write, the last one of this try."""
        if self.spending:
            await self.spending.settle()
        fields = {SPENT: self.state.meter.own.to_json(), **fields_of_next_try(self.state.meter)}
        await self.state.emit.retry(event, fields, event.delay_seconds)

    async def _finish(self, result: ToolAgentResult, outputs: RunOutputs) -> None:
        """Writes the result and ``run_finished`` and releases the lease, in one write, the last one of the run."""
        fields = {
            "status": result.status.value,
            "result": self.state.emit.masked_json(result.to_json()),
            "finished": now().isoformat(),
            **self.state.counts,
        }
        if outputs.disk_bytes is not None:
            fields[DISK] = str(outputs.disk_bytes)
        if outputs.patch is not None:
            fields["patch"] = self.state.emit.masked(outputs.patch)
        if self.spending:
            await self.spending.settle()
        artifacts = {name: self.state.emit.masked(text) for name, text in outputs.kept.items()}
        await self.state.emit.finish(
            RunFinished(result=result), fields, self.services.settings.retention_seconds, artifacts
        )
