"""What Celery, and so Flower, gets of a delegation's end."""

from __future__ import annotations

from typing import Any

import pytest
from celery.events.state import State

from deputize.worker.celery_pool.task_end import Unsuccessful, of_task
from tests.marked import MARKED, Marked


@pytest.mark.parametrize("row", MARKED, ids=lambda row: f"{row.sign} {row.words}")
def test_a_task_ends_with_the_mark_and_succeeds_only_where_nothing_is_against_the_result(row: Marked) -> None:
    shown: list[str] = []
    if row.sign == "✓":
        assert of_task(row.result, shown.append) == f"✓ {row.words}"
        assert shown == []
        return
    with pytest.raises(Unsuccessful) as failed:
        of_task(row.result, shown.append)
    assert str(failed.value) == f"{row.sign} {row.words}"
    assert shown == [str(failed.value)]


@pytest.mark.parametrize("late", [True, False])
def test_what_flower_keeps_of_a_failed_task_is_its_last_progress(late: bool) -> None:
    state: Any = State()
    events = [("progress", "step 3 of 6"), ("progress", "✗ failed (timeout)"), ("failed", None)]
    for number, (type, result) in enumerate([events[0], *(events[:0:-1] if late else events[1:])]):
        told: dict[str, Any] = {"result": result} if result else {"exception": "Unsuccessful()"}
        common = {"type": f"task-{type}", "uuid": "dlg_1", "hostname": "w", "timestamp": number, "clock": number}
        state.event({**common, "local_received": number, **told})
    (task,) = state.tasks.values()
    assert (task.state, task.result) == ("FAILURE", "✗ failed (timeout)")
