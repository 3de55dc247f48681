"""What Celery, and so Flower, gets of a delegation's end."""

from __future__ import annotations

import pytest

from deputize.worker.task import Unsuccessful, of_task
from tests.marked import MARKED, Marked


@pytest.mark.parametrize("row", MARKED, ids=lambda row: f"{row.sign} {row.words}")
def test_a_task_ends_with_the_mark_and_succeeds_only_where_nothing_is_against_the_result(row: Marked) -> None:
    if row.sign == "✓":
        assert of_task(row.result) == f"✓ {row.words}"
        return
    with pytest.raises(Unsuccessful) as failed:
        of_task(row.result)
    assert str(failed.value) == f"{row.sign} {row.words}"
