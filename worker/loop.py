"""The loop: call the model, execute its tool calls, return their results; until done or a limit is reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..shared.errors import ContextFull
from ..shared.events import TurnStarted
from .conversation import Conversation
from .limits import LimitReached, Meter, Repetition
from .model_calls import ModelCalls, compact
from .models.base import Call, Reply
from .models.endings import Ending, imitates_call
from .prompt import last_turn
from .steps import StepLog, not_executed, replied
from .tool_calls import ToolCalls


@dataclass(frozen=True, slots=True)
class Loop:
    """The tool loop of one run, with its parts. None of them is shared with another run."""

    conversation: Conversation
    model_calls: ModelCalls
    tool_calls: ToolCalls
    meter: Meter
    steps: StepLog
    repetition: Repetition | None
    checkpoint: Callable[[], None]
    """Called when conversation and counts are consistent: after each reply and after its results."""

    async def run(self) -> None:
        """Runs turns until the model is done.

        Raises ``LimitReached``, ``ModelUnavailable``, ``Refused`` and ``Fenced``.
        """
        if open_calls := self.conversation.unanswered(self.meter.turns):
            await self.answer(open_calls)
        while True:
            reply = await self.turn()
            match self.model_calls.ending(reply):
                case Ending.CALLS:
                    await self.answer(reply.calls)
                case Ending.FULL:
                    await compact(self.model_calls, self.steps, "the reply reached the end of the model's window")
                case Ending.DONE:
                    self.model_calls.check_known(reply)
                    return
                case ending:
                    self.model_calls.ask(reply, ending)

    async def turn(self) -> Reply:
        """Runs the model call of the next turn; compacts a conversation that is too long for the model."""
        self.meter.check_turn()
        if self.conversation.is_full and await self.conversation.fills_window():
            await compact(self.model_calls, self.steps, "the conversation neared the model's window")
        try:
            return await self.ask(self.meter.begin_turn())
        except ContextFull as full:
            self.meter.turns -= 1  # it got no reply
            await compact(self.model_calls, self.steps, str(full))
            return await self.ask(self.meter.begin_turn())

    async def ask(self, turn: int, *, final: bool = False) -> Reply:
        """Streams, counts and stores one reply. Raises ``ModelUnavailable``, and ``LimitReached`` (budget)."""
        self.steps.turn = turn
        self.steps.emit.emit(TurnStarted(turn=turn, tainted_by=self.tool_calls.reading.trust.tainted_by))
        reply = await (self.model_calls.final_reply(turn) if final else self.model_calls.reply(turn))
        self.steps.thinking = reply.thinking or reply.text
        reply = self.conversation.add(reply, self.model_calls.ending(reply))
        self.steps.emit.emit(replied(turn, reply))
        self.checkpoint()
        return reply

    async def answer(self, calls: Sequence[Call]) -> None:
        """Executes the calls of a reply and adds their results to the conversation, in call order."""
        results = await self.tool_calls.execute(calls)
        self.conversation.answer(zip(calls, results, strict=True))
        self.tool_calls.ledger.clear()
        self.checkpoint()
        if self.repetition:
            self.repetition.watch(calls, results)

    async def summarize(self, limit: LimitReached) -> str:
        """Runs the final turn, without tools, and returns its text."""
        self.meter.reached = limit
        self.close_calls(str(limit), note=last_turn(limit))
        text = (await self.ask(self.meter.turns + 1, final=True)).text
        return "" if imitates_call(text, self.model_calls.tool_names) else text

    def close_calls(self, why: str, note: str = "") -> None:
        """Adds a result for every open call, so that each call has exactly one; ``note`` is added for the model."""
        if calls := self.conversation.unanswered(self.meter.turns):
            results = [self.tool_calls.known(call.key) or not_executed(why) for call in calls]
            self.conversation.answer(zip(calls, results, strict=True), note)
        elif note:
            self.conversation.ask(note)
