"""The loop: call the model, judge and execute its tool calls, return the results; until done or a limit is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from shared.delegation import TerminationReason
from shared.errors import ContextFull, ErrorType, Fenced, ToolError
from shared.events import TurnStarted
from shared.log import log
from worker.compaction import Window, compact
from worker.emit import Emitter
from worker.history import History
from worker.ledger import Ledger
from worker.limits import LimitReached, Meter, Repetition
from worker.model_call import ModelCall, asked_for_words
from worker.models.base import Call, Prompt, Reply, ToolSpec
from worker.policy import PolicyCall, PolicyContext, decide, denial
from worker.prompt import last_turn, reply_was_cut
from worker.steps import StepLog, in_doubt, not_executed, said
from worker.threads import EXIT_EXCEPTIONS
from worker.toolkit.registry import find
from worker.tools.base import AnyTool, Effect, ToolContext, ToolResult
from worker.tools.bounded_result import bounded


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that may be executed."""

    tool: AnyTool
    params: Any


@dataclass(slots=True)
class Loop:
    """The tool loop of one run, with its parts. None of them is shared with another run."""

    task: str
    """First message of the conversation, and of each one after a compaction."""
    model_call: ModelCall
    window: Window
    system: str
    specs: tuple[ToolSpec, ...]
    kit: Mapping[str, AnyTool]
    policy_context: PolicyContext
    context: ToolContext
    history: History
    meter: Meter
    emit: Emitter
    steps: StepLog
    ledger: Ledger
    repetition: Repetition | None
    after_effects: Callable[[], Awaitable[None]]
    """Called after every call that may have changed the workspace."""
    checkpoint: Callable[[], None]
    """Called when history and counts are consistent: after each reply and after its results."""
    max_output_tokens: int = 16_000
    last_words: str = ""
    answers: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    """Results of the current turn by call key: a cancellation in its middle loses none."""

    async def run(self) -> TerminationReason:
        """Runs turns until the model calls no tools. Raises ``LimitReached``, ``ModelUnavailable`` and ``Fenced``."""
        if left_open := self.history.unanswered(self.meter.turns):
            await self.answer(left_open)
        while True:
            reply = await self.turn()
            if reply.calls:
                await self.answer(reply.calls)
            elif reply.stop_reason == "max_tokens":
                self.history.ask(reply_was_cut())
            elif reply.stop_reason == "model_context_window_exceeded":
                await compact(self, "the reply reached the end of the model's window")
            elif reply.stop_reason != "pause_turn" and not asked_for_words(self.history, reply):
                return reply.termination_reason

    async def summarize(self, limit: LimitReached) -> None:
        """Runs the final turn, without tools."""
        self.settle(str(limit), note=last_turn(limit))
        await self.ask(self.meter.turns + 1, allow_tools=False)

    def settle(self, why: str, note: str = "") -> None:
        """Adds a result for every open call, so that each call has exactly one."""
        if calls := self.history.unanswered(self.meter.turns):
            self.history.answer([(call, self.answers.get(call.key) or not_executed(why)) for call in calls], note)
        elif note:
            self.history.ask(note)

    async def turn(self) -> Reply:
        """Runs the next turn; compacts a conversation that is too long for the model."""
        self.meter.check_turn()
        if self.window.is_full(self.history):
            await compact(self, "the conversation neared the model's window")
        try:
            return await self.ask(self.meter.begin_turn())
        except ContextFull as full:
            self.meter.turns -= 1  # it got no reply
            await compact(self, str(full))
            return await self.ask(self.meter.begin_turn())

    async def ask(self, turn: int, *, allow_tools: bool = True) -> Reply:
        """Streams, stores and counts one reply. Raises ``ModelUnavailable``, and ``LimitReached`` (budget)."""
        self.steps.turn = turn
        self.emit.emit(TurnStarted(turn=turn))
        most, key = self.max_output_tokens, self.context.delegation_id
        prompt = Prompt(self.system, self.specs, self.history.messages, most, allow_tools, key)
        reply = await self.model_call.reply(prompt, turn, counted=allow_tools)
        return self.keep(turn, reply.with_call_keys(turn) if allow_tools else reply.without_calls())

    def keep(self, turn: int, reply: Reply) -> Reply:
        """Adds a reply to history, counts and events."""
        usage = self.meter.spend(reply.usage)
        self.last_words = reply.text or self.last_words
        self.steps.thinking = reply.thinking or reply.text
        self.history.add(reply.sendable())
        self.model_call.bound.learn(reply.usage, len(self.history.messages))
        self.window.learn(reply.usage, self.history)
        self.emit.emit(said(turn, reply, usage))
        self.checkpoint()
        return reply

    async def answer(self, calls: Sequence[Call]) -> None:
        """Judges and executes the calls, read-only ones concurrently; adds the results in call order."""
        self.answers = {}
        await self.ledger.risk(calls)
        judged = [(call, await self.judge(call)) for call in calls]
        for together, group in groupby(
            judged, lambda pair: isinstance(pair[1], Prepared) and pair[1].tool.side_by_side
        ):
            if together:
                async with asyncio.TaskGroup() as tasks:
                    for call, verdict in group:
                        tasks.create_task(self.carry_out(call, verdict))
            else:
                for call, verdict in group:
                    await self.carry_out(call, verdict)
        self.history.answer([(call, self.answers[call.key]) for call in calls])
        self.ledger.clear()
        self.checkpoint()
        if self.repetition:
            self.repetition.watch(calls)

    async def judge(self, call: Call) -> Prepared | ToolResult:
        """Returns the call ready for execution, or the result that tells the model why it is not executed."""
        if not self.meter.take_call():
            return not_executed(f"limit reached (maxToolCalls {self.meter.limits.max_tool_calls})")
        try:
            self.ledger.check(call.key)
            if call.problem:
                raise ToolError(ErrorType.INVALID_TOOL_PARAMS, call.problem)
            tool = find(self.kit, call.name)
            params = await tool.accept(self.context, call.arguments)
        except ToolError as error:
            return ToolResult.failed(error)
        denied = denial(decide(PolicyCall(tool, tool.touches(params)), self.policy_context))
        return ToolResult.failed(denied) if denied else Prepared(tool, params)

    async def carry_out(self, call: Call, verdict: Prepared | ToolResult) -> None:
        """Executes one judged call and records its result; its step ends in every case."""
        if isinstance(verdict, ToolResult):
            self.answers[call.key] = verdict
            self.steps.refuse(call, verdict)
            return
        if earlier := self.ledger.finished(call.key):
            self.answers[call.key] = earlier
            return
        title = verdict.tool.title(verdict.params)
        step = self.steps.start(call, verdict.tool, title)
        result = in_doubt("the run was stopped while this call was under way")
        try:
            context = replace(self.context, call_id=call.key, on_metadata=self.steps.updates(step))
            result = await self.execute(verdict, context)
        finally:
            self.answers[call.key] = result
            self.steps.end(step, result)
            self.ledger.finish(call.key, result)

    async def execute(self, prepared: Prepared, context: ToolContext) -> ToolResult:
        """Runs the tool, unless an earlier attempt did. An unexpected exception is logged and fails the call."""
        tool, params = prepared.tool, prepared.params
        try:
            result = await self.ledger.settle(context.call_id, tool, params, context)
            if result is None:
                await self.ledger.start(context.call_id, tool, params, context)
                result = await tool.run(context, params)
        except ToolError as error:
            result = ToolResult.failed(error)
        except (Fenced, *EXIT_EXCEPTIONS):
            raise
        except BaseException as error:  # noqa: BLE001 - the one broad except: the run goes on, the traceback is kept
            log.exception("tool %s failed", tool.name)
            result = ToolResult.failed(ToolError(ErrorType.EXECUTION_FAILED, f"{tool.name} failed inside: {error}"))
        if tool.effect is not Effect.PURE:
            await self.after_effects()
        return await bounded(result, tool, context, self.model_call.bound.estimate)
