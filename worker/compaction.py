"""Compaction: a conversation close to the model's context window is replaced by a new one that starts from a summary.

The new conversation begins with the request, the summary and the names of the files that were read, so that they can
be read again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..shared.delegation import Step
from ..shared.errors import ContextFull, ModelUnavailable
from ..shared.events import ProgressMade
from ..shared.log import log
from ..shared.text import clip
from .limits import LimitReached
from .model_calls import ModelCalls
from .prompt import continued_task
from .steps import StepLog

MAX_LISTED = 50
MAX_LOG_CHARS = 12_000


async def compact(calls: ModelCalls, steps: StepLog, why: str) -> None:
    """Replaces the conversation by a new one.

    If the model cannot write the summary, because the call failed or the conversation is too long even for that, the
    log of the steps is used instead. Raises ``ModelUnavailable`` where there is nothing to leave out.
    """
    conversation = calls.conversation
    messages = len(conversation.messages)
    if messages < 2:
        raise ModelUnavailable(f"{why}, and there is nothing to leave out: give the task less context")
    summary = await _summary(calls, steps)
    conversation.restart(*continued_task(conversation.task, summary, read_files(steps.ended)))
    calls.emit.emit(ProgressMade(message=f"{why}: {messages} messages became a summary of {len(summary)} characters"))
    calls.checkpoint()


async def _summary(calls: ModelCalls, steps: StepLog) -> str:
    try:
        if summary := await calls.summary():
            return summary
        why = "the model's reply was empty"
    except (ModelUnavailable, LimitReached) as error:
        why = "the conversation was too long for it" if isinstance(error, ContextFull) else str(error)
    log.warning("the model wrote no summary: %s", why)
    done = clip(steps.details(), MAX_LOG_CHARS) or "No step was made."
    last = calls.conversation.last_words
    return f"(The model wrote no summary: {why}. This is the log of the steps.)\n{done}\n\n{last}".strip()


def read_files(steps: Sequence[Step]) -> list[str]:
    """Returns the files that were read, each once, the last read at the end."""
    paths = [str(step.arguments.get("path") or step.arguments.get("file_path") or "") for step in steps]
    read = [path for step, path in zip(steps, paths, strict=True) if step.type == "read" and path and not step.error]
    return list(dict.fromkeys(reversed(read)))[:MAX_LISTED][::-1]
