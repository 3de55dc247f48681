"""One prompt to the model and its reply: what it may cost is reserved, what it costs is counted (P-07)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from shared.events import ModelRetried, TextDelta, ThinkingDelta
from worker.emit import Emitter
from worker.limits import Meter, PromptBound
from worker.models.base import Begun, Model, Prompt, Reply, Retrying, TextPart, ThinkingPart


@dataclass(frozen=True, slots=True)
class Asking:
    """The model as one run asks it."""

    model: Model
    meter: Meter
    bound: PromptBound
    emit: Emitter
    checkpoint: Callable[[], None]
    """Keeps the meter's counts: what is owed survives this worker."""

    async def reply(self, prompt: Prompt, turn: int, *, counted: bool = True, aloud: bool = True) -> Reply:
        """Streams one reply; ``prompt.max_output_tokens`` is lowered to what the budget leaves.

        ``counted``: the turn is one of the limit's. ``aloud``: people see the words as they come. Raises
        ``LimitReached`` (budget), ``ContextFull`` and ``ModelUnavailable``. The caller spends the reply's usage.
        """
        allowance = self.meter.output_allowance(await self.bound.counted(prompt), prompt.max_output_tokens)
        async with aclosing(self.model.reply(replace(prompt, max_output_tokens=allowance))) as parts:
            async for part in parts:
                match part:
                    case Begun(usage):
                        self.meter.begin_reply(usage, counted=counted)
                        self.checkpoint()
                    case TextPart(text) if aloud:
                        self.emit.delta(TextDelta, turn, text)
                    case ThinkingPart(text) if aloud:
                        self.emit.delta(ThinkingDelta, turn, text)
                    case Retrying(error, delay, wasted):
                        self.meter.spend(wasted, wasted=True)
                        self.emit.emit(ModelRetried(turn=turn, error=error, delay_seconds=delay))
                    case Reply():
                        return part
                    case _:
                        pass
        raise AssertionError("a model's stream ends with a Reply or an error")
