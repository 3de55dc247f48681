"""Celery's revoke means cancel: a stored revoke would drop every later ticket and strand the delegation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from celery.worker.control import control_command, ok
from kombu.utils.functional import maybe_list

SIGNATURE = "[id1 [id2 [... [idN]]]]"


def revoke_means_cancel(cancel: Callable[[Sequence[str]], None]) -> None:
    """Replaces Celery's ``revoke`` and ``terminate`` by ``cancel``, for ``celery control`` and Flower."""

    def cancelled(task_id: Any) -> Any:
        ids = [str(id) for id in maybe_list(task_id) or []]
        cancel(ids)
        return ok(f"asked to cancel {', '.join(ids)}")

    @control_command(name="revoke", variadic="task_id", signature=SIGNATURE)
    def revoke(state: Any, task_id: Any, terminate: bool = False, signal: Any = None, **_: Any) -> Any:
        """Cancel delegations by id, as `deputize cancel` does."""
        return cancelled(task_id)

    @control_command(name="terminate", variadic="task_id", args=[("signal", str)], signature=f"<signal> {SIGNATURE}")
    def terminate(state: Any, signal: Any, task_id: Any, **_: Any) -> Any:
        """Cancel delegations by id; the signal has no meaning here."""
        return cancelled(task_id)
