"""One attempt at a run: its phases and its parts, in their order; it always cleans up and reports a result."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import replace
from functools import partial

from ...shared.delegation import TerminationReason, ToolAgentResult
from ...shared.errors import (
    EnvironmentFailed,
    Fenced,
    Misconfigured,
    ModelUnavailable,
    Refused,
    RepositoryFailed,
    WorkspaceLost,
)
from ...shared.events import Heartbeat, RunResumed, RunStarted
from ...shared.log import bind, log
from ...shared.runs.record import CLOSED, Claim
from ...shared.tool_traits import ToolTraits
from ..contracts import StopReason, StopSignal
from ..linux.system import exhausted
from ..models.base import Model
from ..threads import EXIT_EXCEPTIONS
from ..tools.traits import further_tools, tool_traits
from .earlier_attempts import interrupted_because, recall_steps
from .hooks import TurnHooks
from .last_write import completed, finish, release, result_of
from .loop import Loop
from .outcome import RunCancelled, RunOutcome
from .part import Hearing, Part, Work, errors_reported
from .resources import Resources
from .run_context import in_doubt
from .supervision import Supervision

HEARTBEAT_SECONDS = 10.0
NO_MODEL = "no model"
"""What is published in place of the name of a model."""


class Run:
    """One attempt at one delegation."""

    def __init__(
        self,
        resources: Resources,
        parts: Sequence[Part],
        stop: StopSignal,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self.resources = resources
        self.parts = parts
        self.context = resources.context
        self.supervision = Supervision(self.context, stop)
        self.heartbeat_seconds = heartbeat_seconds
        self._hearing = [Hearing(part) for part in parts if type(part).hears is not Part.hears]
        self.context.emit.listeners = self._hearing
        stop.elapsed = lambda: self.context.meter.elapsed
        stop.message, self.context.emit.on_messages = self.resources.inbox.notify, self.resources.inbox.note
        self.loop: Loop | None = None
        """None until the run begins to work, and in a run without a model."""

    @property
    def claim(self) -> Claim:
        return self.context.claim

    async def execute(self) -> ToolAgentResult | None:
        """Returns the result, stored and published; None where another worker owns the run or it is done again."""
        bind(self.claim.id, attempt=self.claim.attempt, trace_id=self.resources.trace_id)
        heartbeat = asyncio.create_task(self._beat(), name=f"heartbeat {self.claim.id}")
        self.resources.open_inbox(self._wrap_up)
        try:
            outcome = await self._work()
            if self.loop is None and not self.claim.is_first:
                await self._end_steps()
            if not outcome.of_loop:
                outcome = await self._settled(outcome)
            outcome = outcome.masked(self.context.emit.mask.text)
            if outcome.again:
                await release(self.resources, outcome.again)
                return None
            self.context.emit.set({CLOSED: "1"})  # no further messages: the result has those that came before
            outputs = await self.resources.outputs()
            await self.context.emit.settled()
            await self.resources.inbox.settled()
            reaped = self.loop.tool_calls.context.sandbox.reaped if self.loop else ()
            result = result_of(self.resources, outcome, outputs, reaped)
            result = await completed(self.context, self.parts, self._hearing, result, outcome)
            await finish(self.resources, result, outputs)
            return result
        except Fenced:
            log.warning("this attempt lost its lease and stops")
            return None
        finally:
            heartbeat.cancel()
            self.resources.inbox.close()
            self.context.emit.close()
            self.resources.close()
            self._free()

    def _free(self) -> None:
        """Frees what is large: objects of a run refer to each other in circles, and are collected some runs later."""
        self.context.steps.ended.clear()
        if self.loop:
            self.loop.conversation.messages.clear()
            self.loop.tool_calls.results.clear()

    async def _work(self) -> RunOutcome:
        if self.claim.cancelled:
            return RunOutcome(TerminationReason.CANCELLED, "Cancelled while it waited for another worker.")
        if self.resources.given_up:
            return self._failure(TerminationReason.WORKER_LOST, self.resources.given_up)
        try:
            await self.resources.inbox.settled()
            await self.resources.prepare()
            return await self._carry_out()
        except Refused as error:
            return self._failure(TerminationReason.REFUSED, error.detail)
        except RepositoryFailed as error:
            may_pass = error.kind == "repository_unreachable"
            self.context.report_error(str(error), error.kind)
            return RunOutcome(TerminationReason.ERROR if may_pass else TerminationReason.REFUSED, str(error), may_pass)
        except (WorkspaceLost, EnvironmentFailed) as error:
            return self._failure(TerminationReason(error.reason), str(error))
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

    async def _carry_out(self) -> RunOutcome:
        async with AsyncExitStack() as ends:  # one that fails prevents no other
            for part in reversed(self.parts):
                ends.push_async_callback(part.end)
            return await self._with_model(await self.resources.model())

    async def _with_model(self, model: Model | None) -> RunOutcome:
        if model is None:
            self._begin(NO_MODEL)
        try:
            await self._open_files()
            if model is None:
                return await self._work_by_parts(None)
            await self.supervision.until_stopped(self.resources.set_up(), lambda: self.context.meter.time_for_summary)
        except TimeoutError:
            limit, when = self.context.meter.out_of_time(), " while the project was set up" * self.claim.is_first
            return RunOutcome(limit.reason, f"Stopped: {limit}{when}.")
        except RunCancelled:
            return self.supervision.cancelled("Cancelled while the project was set up.")
        async with self.resources.loop(model, self._hooks()) as self.loop:
            await self._announce(self.loop)
            return await self._work_by_parts(self.loop)

    def _hooks(self) -> TurnHooks:
        return TurnHooks(
            before_turn=[part.before_turn for part in self.parts if type(part).before_turn is not Part.before_turn],
            around=[part.around for part in self.parts if type(part).around is not Part.around],
        )

    async def _work_by_parts(self, loop: Loop | None) -> RunOutcome:
        """Lets the loop work until no part wants it to go on. Each part may end the run before its first turn."""
        work = Work(loop, self.supervision.until_stopped, self.supervision.in_time)
        for part in self.parts:
            if outcome := await part.begin(work):
                return replace(outcome, of_loop=False)
        if loop is None:
            raise Misconfigured("a run without a model needs a part that does its work")
        while True:
            outcome = replace(await self.supervision.finished(loop), of_loop=True)
            for part in self.parts:
                if (settled := await part.settle(outcome)) is None:
                    break
                outcome = replace(settled, of_loop=True)  # a part may have made a new one
            else:
                return outcome

    async def _settled(self, outcome: RunOutcome) -> RunOutcome:
        """Returns an outcome that does not come from the loop, as the parts settle it."""
        report = partial(self.context.report_error, kind="internal")
        for part in self.parts:
            with nullcontext() if part.must_settle else errors_reported(part, report):
                outcome = replace(await part.settle(outcome) or outcome, of_loop=False)
        return outcome

    async def _open_files(self) -> None:
        """Opens the files; what comes from another machine is within the run's time."""
        opening = self.resources.open_files()
        if self.resources.is_remote:
            await self.supervision.until_stopped(opening, lambda: self.context.meter.time_for_summary)
        else:
            await opening

    async def _end_steps(self) -> None:
        """Counts the calls that earlier attempts left under way, and ends their steps: they are not continued."""
        self.context.meter.tool_calls += len(self.claim.ledger)
        doubt = in_doubt(f"{interrupted_because(self.claim)} while this call was under way")
        for step in recall_steps(self.context.steps, self.claim, await self.resources.events()):
            self.context.steps.end(step, doubt)

    def _failure(self, reason: TerminationReason, message: str, *, may_pass: bool = True) -> RunOutcome:
        self.context.report_error(message, reason.value)
        return RunOutcome(reason, message, may_pass)

    async def _announce(self, loop: Loop) -> None:
        if not self.claim.is_first:
            self.context.steps.turn = self.context.meter.turns
            if self.context.meter.time_left > 0:
                recall_steps(self.context.steps, self.claim, await self.resources.events())
            else:
                await self._end_steps()
        kit = loop.tool_calls.kit
        self._begin(loop.model_calls.model.name, kit, tool_traits(further_tools(kit)))
        await asyncio.sleep(0)  # sent before the first turn, else after what it computes

    def _begin(self, model: str, tools: Iterable[str] = (), further: Iterable[ToolTraits] = ()) -> None:
        """Publishes that this attempt begins."""
        claim, worker = self.claim, self.resources.worker
        ending = "was handed over: its worker was stopped" if claim.past.handed_over else "lost its worker"
        started = RunStarted(worker=worker, model=model, tools=[*tools], limits=claim.limits, further_tools=[*further])
        resumed = RunResumed(worker=worker, from_turn=self.context.meter.turns, reason=f"the previous attempt {ending}")
        self.context.emit.emit(started if claim.is_first else resumed)
        self.context.emit.flush()  # callers wait for this sign that a worker has the run

    def _wrap_up(self) -> None:
        """Lets the run end before its next turn. Before the first one it ends at once: there is nothing to report."""
        self.context.meter.wrap_up()
        if self.loop is None and not self.context.meter.turns:
            self.supervision.stop.set(StopReason.WRAPPED_UP)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.heartbeat_seconds)
            progress = self.context.progress
            self.context.emit.emit(Heartbeat.model_validate(progress.model_dump()))
            self.context.emit.set({"progress": progress.to_json()})  # for clients that poll
