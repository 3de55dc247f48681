"""The end of the Celery task: what Celery and Flower show of a delegation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...shared.connection import REDIS_ERRORS
from ...shared.delegation import Status
from ...shared.marks import MARKS
from ...shared.runs.keys import record_key
from .pool import AsyncTask

if TYPE_CHECKING:
    from ...shared.delegation import ToolAgentResult
    from ...shared.runs.store import RunStore
    from .process import ProgressEvents


class Unsuccessful(Exception):
    """Reports to Celery and Flower that a delegation is not proven, failed or was cancelled, and why."""


class DelegationTask(AsyncTask):
    """The base of the task: an unsuccessful delegation is not an error of this code, so it logs no traceback."""

    abstract = True

    def on_failure(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        if isinstance(exc, Unsuccessful):
            einfo.traceback = ""


async def end_of_task(
    store: RunStore, progress: ProgressEvents, ticket: str, result: ToolAgentResult | None
) -> str | None:
    """Returns what is shown of the delegation that the task of this ticket has carried out: it may be another one.

    ``result`` is None for none. Raises as ``of_task``.
    """
    if result is None:
        if await _is_of_another_task(store, ticket):
            progress.ended(ticket, "")
        return None
    progress.ended(ticket, result.delegation_id)
    return of_task(result, partial(progress.update, result.delegation_id))


async def _is_of_another_task(store: RunStore, id: str) -> bool:
    """Returns whether another task carries the delegation out, or has done so."""
    with suppress(*REDIS_ERRORS):
        status, attempt = await store.redis.hmget(record_key(id), "status", "attempt")
        return status is not None and (attempt != "0" or not Status(status).finished)
    return True


def of_task(result: ToolAgentResult, show: Callable[[str], None]) -> str:
    """Returns what Flower shows of a result. Raises ``Unsuccessful`` unless nothing is against it.

    Of a failed task Flower shows the progress that it heard last, so ``show`` gets the reason as that.
    """
    shown = f"{MARKS[result.mark]} {result.ending}"
    if result.mark != "ok":
        show(shown)
        raise Unsuccessful(shown)
    return shown
