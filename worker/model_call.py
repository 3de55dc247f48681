"""One model call: its maximum cost is reserved before, its actual cost is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from shared.delegation import TerminationReason
from shared.errors import ModelUnavailable
from shared.events import ModelRetried, TextDelta, ThinkingDelta
from worker.emit import Emitter
from worker.history import History, user_message
from worker.limits import Meter, PromptBound
from worker.models.base import Model, Prompt, Reply, ReplyStarted, Retrying, TextPart, ThinkingPart
from worker.prompt import nothing_was_said


@dataclass(frozen=True, slots=True)
class ModelCall:
    """The model calls of one run."""

    model: Model
    meter: Meter
    bound: PromptBound
    emit: Emitter
    checkpoint: Callable[[], None]
    """Stores the meter's counts, so that the usage owed survives this worker."""

    async def reply(self, prompt: Prompt, turn: int, *, counted: bool = True, stream: bool = True) -> Reply:
        """Streams one reply; ``prompt.max_output_tokens`` is lowered to what the budget allows.

        ``counted``: the reply counts as a turn. ``stream``: text deltas are published as they arrive. Raises
        ``LimitReached`` (budget), ``ContextFull`` and ``ModelUnavailable``. The caller books the reply's usage.
        """
        tokens = await self.bound.counted(prompt)
        while True:
            allowance = self.meter.output_allowance(tokens, prompt.max_output_tokens)
            allowed = replace(prompt, max_output_tokens=allowance)
            if reply := await self._stream(allowed, tokens, turn, counted=counted, stream=stream):
                return reply

    async def _stream(self, prompt: Prompt, tokens: int, turn: int, *, counted: bool, stream: bool) -> Reply | None:
        """Returns None where failed tries used so much that the prompt must be sent again with a smaller allowance."""
        async with aclosing(self.model.reply(prompt)) as parts:
            async for part in parts:
                match part:
                    case ReplyStarted(usage):
                        self.meter.begin_reply(usage, counted=counted)
                        self.checkpoint()
                    case TextPart(text) if stream:
                        self.emit.delta(TextDelta, turn, text)
                    case ThinkingPart(text) if stream:
                        self.emit.delta(ThinkingDelta, turn, text)
                    case Retrying(error, delay, wasted):
                        self.meter.spend(wasted, wasted=True)
                        self.emit.emit(ModelRetried(turn=turn, error=error, delay_seconds=delay))
                        if self.meter.output_allowance(tokens, prompt.max_output_tokens) < prompt.max_output_tokens:
                            await asyncio.sleep(delay)
                            return None
                    case Reply():
                        return part
                    case _:
                        pass
        raise AssertionError("a model's stream ends with a Reply or an error")


def asked_for_words(history: History, reply: Reply) -> bool:
    """Asks the model for a report where its final reply is empty; returns whether it did.

    Raises ``ModelUnavailable`` where the reply to that is empty as well.
    """
    if not reply.is_empty or reply.termination_reason is not TerminationReason.COMPLETED:
        return False
    question = nothing_was_said()
    if len(history.messages) > 1 and history.messages[-2] == user_message(question):
        raise ModelUnavailable(
            "the model ended its work without a word, and again when it was asked for a report. What was done stands "
            "in the steps and the files; whether the task is done is not known"
        )
    history.ask(question)
    return True
