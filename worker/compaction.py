"""Compaction: a conversation close to the model's context window is replaced by a new one that starts from a summary.

Nothing that was sent is edited: provider signatures bind to the exact prefix. The new conversation begins with the
request, the summary and the names of the files that were read, so that they can be read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from shared.delegation import Step, Usage
from shared.errors import ContextFull, ModelUnavailable
from shared.events import ProgressMade
from shared.log import log
from shared.text import clip
from worker.emit import Emitter
from worker.history import History, user_message
from worker.limits import LimitReached, Meter
from worker.model_call import ModelCall
from worker.models.base import Prompt, ToolSpec
from worker.prompt import ask_for_summary, fresh_start
from worker.steps import StepLog
from worker.tools.context import ToolContext

FULL = 0.8
"""Fraction of the window at which it still has room for a summary, or for a reply without one."""
BYTES_A_TOKEN = 2
"""Below the average of any text, so that the estimate errs on the early side."""
SUMMARY_TOKENS = 8_000
MAX_LISTED = 50
MAX_LOG_CHARS = 12_000


class Window:
    """How full the context window is: the tokens billed for what was sent, plus an estimate of what was added since."""

    def __init__(self, tokens: int, billed: Sequence[int] = (0, 0)) -> None:
        self._tokens = tokens
        self.billed = tuple(billed)
        """Tokens billed so far, and the bytes of history they were billed for; stored for the next attempt."""

    def learn(self, usage: Usage, history: History) -> None:
        """Records the billed tokens of a reply; the history ends with that reply."""
        self.billed = usage.total, history.size

    def is_full(self, history: History) -> bool:
        tokens, size = self.billed
        return tokens + (history.size - size) / BYTES_A_TOKEN >= self._tokens * FULL

    def empty(self) -> None:
        self.billed = 0, 0


class RunParts(Protocol):
    """The parts of a run that compaction uses."""

    task: str
    model_call: ModelCall
    window: Window
    system: str
    specs: tuple[ToolSpec, ...]
    context: ToolContext
    history: History
    meter: Meter
    emit: Emitter
    steps: StepLog
    checkpoint: Callable[[], None]
    last_words: str


async def compact(loop: RunParts, why: str) -> None:
    """Replaces the conversation by a new one.

    If the model cannot write the summary, because the call failed or the conversation is too long even for that, the
    log of the steps is used instead. Raises ``ModelUnavailable`` where there is nothing to leave out.
    """
    messages = len(loop.history.messages)
    if messages < 2:
        raise ModelUnavailable(f"{why}, and there is nothing to leave out: give the task less context")
    summary = await _summary(loop)
    loop.history.restart(fresh_start(loop.task, summary, read_files(loop.steps.ended)))
    loop.model_call.bound.restart()
    loop.window.empty()
    loop.emit.emit(ProgressMade(message=f"{why}: {messages} messages became a summary of {len(summary)} characters"))
    loop.checkpoint()


async def _summary(loop: RunParts) -> str:
    messages = [*loop.history.messages, user_message(ask_for_summary())]
    prompt = Prompt(
        loop.system, loop.specs, messages, SUMMARY_TOKENS, allow_tools=False, key=loop.context.delegation_id
    )
    try:
        reply = await loop.model_call.reply(prompt, loop.meter.turns, counted=False, stream=False)
        loop.meter.spend(reply.usage)
        if reply.text.strip():
            return reply.text.strip()
        why = "the model said nothing"
    except (ModelUnavailable, LimitReached) as error:
        why = "the conversation was too long for it" if isinstance(error, ContextFull) else str(error)
    log.warning("the model wrote no summary: %s", why)
    done = clip(loop.steps.details(), MAX_LOG_CHARS) or "No step was made."
    return f"(A summary could not be had: {why}. This is the log of the steps.)\n{done}\n\n{loop.last_words}".strip()


def read_files(steps: list[Step]) -> list[str]:
    """Returns the files that were read, each once, the last read at the end."""
    paths = [str(step.arguments.get("path") or step.arguments.get("file_path") or "") for step in steps]
    read = [path for step, path in zip(steps, paths, strict=True) if step.type == "read" and path and not step.error]
    return list(dict.fromkeys(reversed(read)))[:MAX_LISTED][::-1]
