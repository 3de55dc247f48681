"""The loop: call the model, execute its tool calls, return their results; until done or a limit is reached.

A turn is one reply of the model and the results of its calls. Each part is stored as soon as it is complete:

- When a reply begins: the cost that is billed for it even if it never ends.
- With the reply: its message, which contains the calls, and the counts, in one write.
- Before a call that may have an effect: its start, in the ledger; after it: its result there, and the end of its step.
- With the last result: all of them as one message, and the counts, in one write that also clears the ledger.

A crash leaves a beginning of that. The next attempt requests a reply that did not end again. If the last message has
calls without results, it begins with them: a finished one keeps its result, one that had started is settled by the
ledger, and the others are executed. Limits are checked before each turn and each call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ...shared.errors import ContextFull
from ...shared.events import TurnStarted
from ..models.base import Call, Reply
from ..models.endings import Ending, imitates_call
from .conversation import Conversation
from .hooks import BeforeTurn, call_each
from .limits import LimitReached
from .model_calls import ModelCalls, compact, reply_from_log
from .prompt import last_turn
from .run_context import RunContext, not_executed, replied
from .run_contracts import Inbox, Repetition
from .tool_calls import ToolCalls


@dataclass(frozen=True, slots=True)
class Loop:
    """The tool loop of one run, with its parts. None of them is shared with another run."""

    run: RunContext
    inbox: Inbox
    conversation: Conversation
    model_calls: ModelCalls
    tool_calls: ToolCalls
    repetition: Repetition | None
    before_turn: Sequence[BeforeTurn] = ()

    @property
    def last_turn(self) -> int:
        """The number of the turn whose calls have no results yet. The meter does not count the final turn."""
        is_final = self.run.meter.reached and self.run.claim.request.output_schema is not None
        return self.run.meter.turns + 1 if is_final else self.run.meter.turns

    async def work(self) -> None:
        """Runs turns until the model is done, or has handed in its output, and has read what its caller sent.

        Raises ``LimitReached``, ``ModelUnavailable``, ``Refused`` and ``Fenced``.
        """
        async with self.inbox.ends_work(lambda: self.run.waits.is_idle, self.run.meter.check_turn):
            await self._work()
        if self.run.meter.reached:
            raise self.run.meter.reached

    async def _work(self) -> None:
        if open_calls := self.conversation.unanswered(self.last_turn):
            await self.answer(open_calls)
        elif self.conversation.ended and self.conversation.recall_last_words() and await self.is_over():
            return  # the worker was lost after the reply that ended the work
        while self.run.output is None or not await self.is_over():
            self.run.take_back_output()
            match self.model_calls.ending(reply := await self.turn()):
                case Ending.CALLS:
                    await self.answer(reply.calls)
                case Ending.FULL:
                    await compact(self.model_calls, "the reply reached the end of the model's window")
                case Ending.DONE:
                    if await self.is_over():
                        return
                case ending:
                    self.model_calls.ask(reply, ending)

    async def is_over(self) -> bool:
        """Returns whether no message came while the last reply was written, or none can be read any more."""
        await self.inbox.settled()
        return not (self.inbox.unread and self.run.meter.may_go_on)

    async def turn(self) -> Reply:
        """Runs the model call of the next turn; compacts a conversation that is too long for the model."""
        self.run.meter.check_turn()
        await call_each(self.before_turn)
        await self.inbox.settled()
        if not self.conversation.awaits_rest:
            self.inbox.read(self.conversation.ask, self.run.meter.turns + 1)
        if self.conversation.is_full and await self.conversation.fills_window():
            await compact(self.model_calls, "the conversation neared the model's window")
        try:
            return await self.request(self.run.meter.begin_turn())
        except ContextFull as full:
            self.run.meter.take_back_turn()  # it got no reply
            await compact(self.model_calls, str(full))
            return await self.request(self.run.meter.begin_turn())

    async def request(self, turn: int, final: Callable[[int], Awaitable[Reply]] | None = None) -> Reply:
        """Streams, counts and stores one reply, in a final turn that of ``final``. Raises as ``ModelCalls``."""
        self.run.steps.turn = turn
        self.run.emit.emit(TurnStarted(turn=turn, tainted_by=self.run.trust.tainted_by))
        reply = await (final or self.model_calls.reply)(turn)
        self.run.steps.thinking = reply.thinking or reply.text
        ending = self.model_calls.ending(reply)
        self.conversation.ended = ending is Ending.DONE and final is None
        reply = self.conversation.add(reply, ending)
        self.run.emit.emit(replied(turn, reply))
        self.model_calls.checkpoint()
        return reply

    async def answer(self, calls: Sequence[Call]) -> None:
        """Executes the calls of a reply and adds their results to the conversation, in call order."""
        results = await self.tool_calls.execute(calls)
        hint = self.repetition.watch(calls, results) if self.repetition else ""
        self.conversation.answer(zip(calls, results, strict=True), hint)
        self.tool_calls.ledger.clear()
        self.model_calls.checkpoint()
        if self.repetition:
            self.repetition.check()

    async def summarize(self, limit: LimitReached) -> str:
        """Runs the final turn, in which at most the output is handed in, and returns its text."""
        if self.run.output is not None:
            return ""
        turn, note = self.run.meter.turns + 1, last_turn(limit, hands_in=self.run.lacks_output)
        await call_each(self.before_turn, limit)
        self.close_calls(str(limit), note=note)
        await self.inbox.settled()
        self.inbox.read(self.conversation.ask, turn)
        self.run.meter.reached = limit
        try:
            reply = await self.request(turn, self.model_calls.final_reply)
        except (ContextFull, LimitReached):
            reply = await self.request(turn, lambda turn: reply_from_log(self.model_calls, note, turn))
        if reply.calls:
            await self.answer(reply.calls)
        return "" if imitates_call(reply.text, self.model_calls.tool_names) else reply.text

    def close_calls(self, why: str, note: str = "") -> None:
        """Adds a result for every open call, so that each call has exactly one; ``note`` is added for the model."""
        if calls := self.conversation.unanswered(self.last_turn):
            results = [self.tool_calls.known(call.key) or not_executed(why) for call in calls]
            self.conversation.answer(zip(calls, results, strict=True), note)
        elif note:
            self.conversation.ask(note)
