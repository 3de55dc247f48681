"""One run: supervises its loop, and always cleans up and reports a result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic_core import to_json

from ..shared.delegation import Progress, Status, TerminationReason, ToolAgentResult
from ..shared.errors import Fenced, Misconfigured, ModelUnavailable, Refused, RepositoryFailed, WorkspaceLost
from ..shared.events import Delivered, Heartbeat, ProgressMade, RunFinished, RunResumed, RunRetried, RunStarted
from ..shared.facts import SummaryClaim, Trust, Verification
from ..shared.fleet import ToolTraits
from ..shared.log import log
from ..shared.request import GitWorkspace
from ..shared.runs.cost import SPENT
from ..shared.runs.disk import DISK
from ..shared.runs.record import CLOSED, OUTPUT, TRUST, Claim
from ..shared.runs.spend import caps_of
from ..shared.text import count
from ..shared.wire import now
from .attempts import (
    LoopBuilder,
    RunOutputs,
    collect_outputs,
    discard_files,
    files_left,
    given_up_because,
    interrupted_because,
    next_try,
    recall_steps,
    with_continued,
)
from .core.limits import LimitReached
from .core.loop import Loop
from .core.outcome import CancelledError, RunOutcome
from .core.run_context import RunContext, in_doubt
from .fleet.inbox import Inbox
from .fleet.lease import StopReason, StopSignal
from .linux.system import exhausted
from .models.base import Model
from .permission import PermissionRequests
from .policy.trust import ReadSources
from .services import Services
from .spending import DaySpending
from .subagents import Children
from .threads import EXIT_EXCEPTIONS
from .toolkit.offer import RunOffer
from .toolkit.run_tools import further_traits
from .workspace.patches import Facts
from .workspace.workspace import Workspace

if TYPE_CHECKING:
    from .merges.merge import Merge

HEARTBEAT_SECONDS = 10.0
NO_MODEL = "no model"
"""What a merge begins with."""
CLOCK_SECONDS = 0.02
"""Seconds after which a clock that is stopped near its end is looked at again."""

_NOT_BEGUN = RunOutcome(TerminationReason.WRAPPED_UP, "Wrapped up before its first turn.")

T = TypeVar("T")


class Run:
    """One attempt at one delegation."""

    def __init__(
        self, claim: Claim, services: Services, stop: StopSignal, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        emit = services.emitter(claim, lambda: stop.set(StopReason.FENCED))
        report_step = partial(services.progress.update, claim.id)
        self.inbox = Inbox(claim, emit.emit, emit.set, self._wrap_up)
        self.reading = ReadSources(lambda trust: emit.set({TRUST: trust}), claim.trust or Trust())
        self.context = RunContext.of(
            claim, emit, self.inbox, self.reading, report_step=report_step, free_slot=services.free_slot
        )
        stop.elapsed = lambda: self.context.meter.elapsed
        stop.message, emit.on_messages = self.inbox.notify, self.inbox.note
        self.services = services
        self.stop = stop
        self.heartbeat_seconds = heartbeat_seconds
        self.children = Children(self.context, services)
        self.requests = PermissionRequests(self.context, services.store.redis, services.leases.bus, services.settings)
        self.spending = DaySpending(self.context, services.pipe, caps_of(services.settings.spend, claim.request.labels))
        self.given_up = given_up_because(claim, services.settings.max_attempts)
        self.workspace: Workspace | None = None
        self.verification: Verification | None = None
        """None without checks, and where none of them was reached."""
        self.loop: Loop | None = None
        """None until the run begins to work, and in a merge."""
        self.merge: Merge | None = None

    @property
    def claim(self) -> Claim:
        return self.context.claim

    async def execute(self) -> ToolAgentResult | None:
        """Returns the result, stored and published; None where another worker owns the run or it is done again."""
        self.context.join_trace(self.services.trace(self.claim, self.context.emit.mask))
        heartbeat = asyncio.create_task(self._beat(), name=f"heartbeat {self.claim.id}")
        self.inbox.open(self.services.store.redis, self.services.wrap_up_seconds)
        try:
            outcome = (await self._work()).masked(self.context.emit.mask.text)
            if self.loop is None and not self.claim.is_first:
                await self._settle()
            await self._end_children()
            await self.requests.close()
            if again := next_try(self.claim, outcome, self.context.meter, self.services.retry_seconds):
                await self._retry(again)
                return None
            self.context.emit.set({CLOSED: "1"})  # no further messages: the result has those that came before
            outputs = await self._outputs()
            await self.context.emit.settled()
            await self.inbox.settled()
            result = await self._delivered(self._result(outcome, outputs), outcome, outputs)
            await self._finish(result, outputs)
            return result
        except Fenced:
            log.warning("this attempt lost its lease and stops")
            return None
        finally:
            heartbeat.cancel()
            self.inbox.close()
            self.context.emit.close()
            if self.workspace is not None:
                self.workspace.close()

    async def _work(self) -> RunOutcome:
        if self.claim.cancelled:
            return RunOutcome(TerminationReason.CANCELLED, "Cancelled while it waited for another worker.")
        if self.given_up:
            return self._failure(TerminationReason.WORKER_LOST, self.given_up)
        try:
            await self.inbox.settled()
            await discard_files(self.services, self.claim, self.children.check_fence)
            self.context.claim = await with_continued(self.services, self.claim)
            return await (self._merge() if self.claim.request.merges else self._work_with_model())
        except Refused as error:
            return self._failure(TerminationReason.REFUSED, error.detail)
        except RepositoryFailed as error:
            may_pass = error.kind == "repository_unreachable"
            self.context.report_error(str(error), error.kind)
            return RunOutcome(TerminationReason.ERROR if may_pass else TerminationReason.REFUSED, str(error), may_pass)
        except WorkspaceLost as error:
            return self._failure(TerminationReason.WORKER_LOST, str(error))
        except (ModelUnavailable, Misconfigured) as error:
            may_pass = isinstance(error, ModelUnavailable) and error.may_pass
            return self._failure(TerminationReason.MODEL_UNAVAILABLE, str(error), may_pass=may_pass)
        except (Fenced, *EXIT_EXCEPTIONS):
            raise
        except BaseException as error:  # the caller gets a result in every case, also after a defect of the worker
            if self.context.emit.handed_over:
                raise asyncio.CancelledError from error  # handed over: the next attempt reports the result
            log.exception("the run failed inside")
            return self._failure(TerminationReason.ERROR, exhausted(error) or f"internal error: {error!r}")

    async def _work_with_model(self) -> RunOutcome:
        model = await self.services.model(asked := self.claim.request.model)
        self.context.note_model(model.name, self.services.settings.table_of(asked).platform)
        self.context.emit.model = self.services.label_of(model, asked)
        self.context.meter.set_price(model, self.spending.caps)
        return await self._carry_out(model, await self.services.offer(self.claim))

    async def _carry_out(self, model: Model, offer: RunOffer) -> RunOutcome:
        try:
            self.workspace = workspace = await self._opened(offer)
            workspace.snapshots.turn = lambda: self.context.meter.turns
            preparing = offer.project_tools(self.claim, workspace, self._report_progress)
            project = await self._until_stopped(preparing, lambda: self.context.meter.time_for_summary)
        except TimeoutError:
            limit, when = self.context.meter.out_of_time(), " while the project was set up" * self.claim.is_first
            return RunOutcome(limit.reason, f"Stopped: {limit}{when}.")
        except CancelledError:
            return self._cancelled("Cancelled while the project was set up.")
        builder = LoopBuilder(
            run=self.context,
            services=self.services,
            offer=offer,
            children=self.children,
            workspace=workspace,
            project=project,
            spending=self.spending,
            requests=self.requests,
            reading=self.reading,
        )
        async with builder.open(model) as self.loop:
            await self._announce(self.loop)
            if not self.claim.request.verify:
                return await self._supervise(self.loop, self.loop.work())
            from .verification.rounds import Rounds, Verifier  # few runs have checks

            async with Verifier(self.context, offer, workspace) as verifier:
                rounds = Rounds(self.context, verifier)
                supervise = partial(self._supervise, self.loop)
                outcome, verification = await rounds.work(self.loop, supervise, self._in_time)
        self.verification = await rounds.confirmed(verification)
        return outcome

    async def _merge(self) -> RunOutcome:
        from .merges.merge import Merge  # few runs are merges

        offer = await self.services.offer(self.claim)
        self._begin(NO_MODEL)
        try:
            self.workspace = await self._opened(offer)
            self.merge = Merge(self.context, offer, self.workspace)
            return await self._until_stopped(self.merge.work(self.services.store), lambda: self.context.meter.time_left)
        except TimeoutError:
            return RunOutcome((limit := self.context.meter.out_of_time()).reason, f"Stopped: {limit}.")
        except CancelledError:
            return RunOutcome(TerminationReason.CANCELLED, "Cancelled while results were merged.")
        finally:
            self.verification = self.merge and self.merge.verification

    async def _in_time(self, checks: Coroutine[Any, Any, T], seconds: float) -> T:
        """Awaits what belongs to checks. It has a time of its own: that of the run stands still meanwhile."""
        end = time.monotonic() + seconds
        with self.context.meter.paused():
            return await self._until_stopped(checks, lambda: end - time.monotonic())

    async def _opened(self, offer: RunOffer) -> Workspace:
        """Opens the workspace; what comes from another machine is within the run's time."""
        opening = self.services.workspace(self.claim, offer.profile.disk_bytes, self._report_progress)
        if not isinstance(self.claim.request.workspace, GitWorkspace):
            return await opening
        return await self._until_stopped(opening, lambda: self.context.meter.time_for_summary)

    async def _settle(self) -> None:
        """Counts the calls that earlier attempts left under way, and ends their steps: they are not gone on with."""
        self.context.meter.tool_calls += len(self.claim.ledger)
        doubt = in_doubt(f"{interrupted_because(self.claim)} while this call was under way")
        for step in await recall_steps(self.context.steps, self.services.store, self.claim):
            self.context.steps.end(step, doubt)

    def _report_progress(self, message: str) -> None:
        self.context.emit.emit(ProgressMade(message=message))

    def _failure(self, reason: TerminationReason, message: str, *, may_pass: bool = True) -> RunOutcome:
        self.context.report_error(message, reason.value)
        return RunOutcome(reason, message, may_pass)

    async def _announce(self, loop: Loop) -> None:
        if not self.claim.is_first:
            self.context.steps.turn = self.context.meter.turns
            if self.context.meter.time_left > 0:
                await recall_steps(self.context.steps, self.services.store, self.claim)
            else:
                await self._settle()
        kit = loop.tool_calls.kit
        self._begin(loop.model_calls.model.name, kit, further_traits(kit))
        await asyncio.sleep(0)  # sent before the first turn, else after what it computes

    def _begin(self, model: str, tools: Iterable[str] = (), further: Iterable[ToolTraits] = ()) -> None:
        """Publishes that this attempt begins."""
        claim, worker = self.claim, self.services.name
        ending = "was handed over: its worker was stopped" if claim.handed_over else "lost its worker"
        started = RunStarted(worker=worker, model=model, tools=[*tools], limits=claim.limits, further_tools=[*further])
        resumed = RunResumed(worker=worker, from_turn=self.context.meter.turns, reason=f"the attempt before {ending}")
        self.context.emit.emit(started if claim.is_first else resumed)
        self.context.emit.flush()  # callers wait for this sign that a worker has the run

    async def _supervise(self, loop: Loop, work: Coroutine[Any, Any, None]) -> RunOutcome:
        """Runs the loop under its time limit and stop signals; a limit is followed by a final turn."""
        try:
            await self._until_stopped(work, lambda: self.context.meter.time_left)
            return RunOutcome(TerminationReason.COMPLETED, loop.conversation.last_words, is_report=True)
        except LimitReached as limit:
            return await self._summarize(loop, limit)
        except TimeoutError:
            if error := loop.model_calls.wait.error:
                self.context.report_error(f"its time ended while it waited for the model's endpoint: {error}", "rate")
            return await self._summarize(loop, self.context.meter.out_of_time())
        except CancelledError:
            loop.close_calls("the delegation was cancelled")
            return self._cancelled(loop.conversation.last_words)

    def _cancelled(self, words: str) -> RunOutcome:
        if self.stop.reason is StopReason.WRAPPED_UP:
            return _NOT_BEGUN
        return RunOutcome(TerminationReason.CANCELLED, words)

    def _wrap_up(self) -> None:
        """Lets the run end before its next turn. Before the first one it ends at once: there is nothing to report."""
        self.context.meter.wrap_up()
        if self.loop is None and not self.context.meter.turns:
            self.stop.set(StopReason.WRAPPED_UP)

    async def _summarize(self, loop: Loop, limit: LimitReached) -> RunOutcome:
        if limit.reason is TerminationReason.WRAPPED_UP and not self.context.meter.turns:
            return _NOT_BEGUN
        earlier, summary = loop.conversation.last_words, ""
        await self._end_children()
        try:
            summary = await self._until_stopped(loop.summarize(limit), lambda: self.context.meter.time_for_summary)
        except (TimeoutError, LimitReached, ModelUnavailable, CancelledError) as error:
            log.info("no summary turn: %s", error)
        if limit.reason is TerminationReason.COMPLETED:
            return RunOutcome(limit.reason, summary or earlier)
        number = len(self.context.steps.ended)
        made = f"{count(number, 'step')} {'was' if number == 1 else 'were'} made."
        log_of_steps = f"Stopped: {limit}. {made} {earlier}".strip()
        return RunOutcome(limit.reason, summary or log_of_steps, is_report=bool(summary))

    async def _until_stopped(self, work: Coroutine[Any, Any, T], seconds_left: Callable[[], float]) -> T:
        """Awaits the work; cancels it at its time limit or on a stop signal, and waits until it has ended.

        ``seconds_left`` is called again when the time is over, because the run's clock may have been stopped. Raises
        ``TimeoutError``, ``CancelledError`` or ``Fenced``, and whatever the work raises.
        """
        doing = asyncio.create_task(work, name=f"loop {self.claim.id}")
        signal = asyncio.create_task(self.stop.wait())
        try:
            while (seconds := seconds_left()) > 0:
                seconds = max(seconds, CLOCK_SECONDS)
                if (await asyncio.wait({doing, signal}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED))[0]:
                    break
        except asyncio.CancelledError:
            self.context.emit.hand_over()
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
        if self.stop.reason is not None:
            raise CancelledError
        raise TimeoutError

    async def _outputs(self) -> RunOutputs:
        """Collects the outputs in every case. Where they cannot be read, the result's errors contain the reason."""
        try:
            self.workspace = self.workspace or await files_left(self.services, self.claim)
            if self.workspace is None:
                return RunOutputs()
            self.workspace.snapshots.turn = lambda: self.context.meter.turns
            try:
                restored = self.verification.restored if self.verification else ()
                return await collect_outputs(self.workspace, self.stop, restored=restored)
            finally:
                self.context.file_turns = self.workspace.snapshots.history.turns
        except OSError as error:
            log.warning("the files of this run cannot be read", exc_info=error)
            why = f"{error.strerror or error}: {error.filename or self.services.settings.workspaces}"
            self.context.report_error(f"which files changed is not known to {self.services.name}: {why}", "workspace")
            return RunOutputs(known=False)

    async def _end_children(self) -> None:
        for id in await self.children.end():
            self.context.report_error(f"subagent {id} was cancelled, and has not reported its usage yet", "subagent")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.heartbeat_seconds)
            progress = self.context.progress
            self.context.emit.emit(Heartbeat.model_validate(progress.model_dump()))
            self.context.emit.set({"progress": progress.to_json()})  # for clients that poll

    def _result(self, outcome: RunOutcome, outputs: RunOutputs) -> ToolAgentResult:
        verification, asked = self.verification, self.claim.request.verify
        if verification is None:
            verification = Verification.incomplete("the run ended before") if asked else Verification()
        made = {"claims": self._claims(outcome, outputs.facts, verification)}
        verification = verification.model_copy(update=made | {"require": self.claim.request.require if asked else None})
        falls_short = outcome.status is Status.SUCCEEDED and not verification.is_met
        return ToolAgentResult(
            delegation_id=self.claim.id,
            status=Status.FAILED if falls_short else outcome.status,
            termination_reason=outcome.reason,
            summary=outcome.summary,
            **self.context.of_result,
            **outputs.of_files,
            verification=verification,
            merge=self.merge and self.merge.facts,
            tool_call_count=self.context.meter.tool_calls,
            attempts=self.claim.attempt - bool(self.given_up),
            artifacts=list(outputs.artifacts),
            undelivered=[message for message in self.inbox.unread if message.text],
            reaped=self.loop.tool_calls.context.sandbox.reaped if self.loop else [],
        )

    def _claims(self, outcome: RunOutcome, facts: Facts | None, verification: Verification) -> list[SummaryClaim]:
        from .verification.summary_claims import Work, summary_claims  # no part of the core

        work = Work.of(self.context.steps.ended, facts, verification)
        return summary_claims(outcome.summary, work) if outcome.is_report else []

    async def _delivered(self, result: ToolAgentResult, outcome: RunOutcome, outputs: RunOutputs) -> ToolAgentResult:
        """Returns the result with what became of its changes in their repository."""
        if not isinstance(self.claim.request.workspace, GitWorkspace):
            return result
        from .workspace.delivery import deliver_changes

        git = await deliver_changes(
            self.claim.request,
            self.services.settings,
            result,
            outputs.facts,
            mask=self.context.emit.mask.text,
            report=self.context.report_error,
            note=self._report_progress,
            check_fence=self.children.check_fence,
        )
        return self._result(outcome, outputs).model_copy(update={"git": git})

    async def _retry(self, event: RunRetried) -> None:
        """Releases the run to its next try, in one write, the last one of this try."""
        await self.spending.settle()
        meter = self.context.meter
        fields = {
            SPENT: meter.own.to_json(),
            "checkpoint": to_json(meter.spent_only().checkpoint() | {"elapsed": 0}).decode(),
            "progress": Progress(cost_usd=meter.usage.cost_usd).to_json(),
        }
        await self.context.emit.end(event, fields, retry_ms=round(event.delay_seconds * 1000))

    async def _finish(self, result: ToolAgentResult, outputs: RunOutputs) -> None:
        """Writes the result and ``run_finished`` and releases the lease, in one write, the last one of the run."""
        fields = {
            "status": result.status.value,
            "result": self.context.emit.mask.json(result.to_json()),
            "finished": now().isoformat(),
            SPENT: self.context.meter.own.to_json(),
            **self.context.counts,
        }
        if self.context.output is not None:
            fields[OUTPUT] = ""  # it is in the result now
        if outputs.disk_bytes is not None:
            fields[DISK] = str(outputs.disk_bytes)
        if outputs.facts is not None:
            fields["patch"] = self.context.emit.mask.text(outputs.facts.patch)
        await self.spending.settle()
        artifacts = {name: self.context.emit.mask.text(text) for name, text in outputs.kept.items()}
        retention = self.services.settings.retention_seconds
        if result.git and result.git.commit:
            self.context.emit.emit(Delivered(git=result.git))  # in the same write: once, whatever becomes of a worker
        await self.context.emit.end(RunFinished(result=result), fields, retention=retention, artifacts=artifacts)
