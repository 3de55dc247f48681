"""The memory of ended runs is freed, though their objects refer to each other in circles."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import ExitStack, suppress
from weakref import WeakSet

import pytest

from deputize.worker.celery_pool.garbage import ENDED_RUNS, RunGarbage


class Circle:
    """What a run leaves."""

    def __init__(self) -> None:
        self.own: Circle | None = self


@pytest.fixture
def left() -> Generator[WeakSet[Circle]]:
    """Nothing is collected but by what is tested."""
    kept, thresholds = WeakSet[Circle](), gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    gc.disable()
    yield kept
    gc.set_threshold(*thresholds)
    gc.enable()
    gc.collect()
    assert not kept


@pytest.fixture
def garbage(left: WeakSet[Circle]) -> RunGarbage:
    """That of a process whose first run has ended. The first one freezes what there is."""
    garbage = RunGarbage()
    for _ in range(ENDED_RUNS):
        run(garbage, None)
    return garbage


def run(garbage: RunGarbage, left: WeakSet[Circle] | None) -> None:
    with garbage.of_run():
        if left is not None:
            left.add(Circle())


def test_what_some_dozens_of_ended_runs_left_is_freed(garbage: RunGarbage, left: WeakSet[Circle]) -> None:
    for _ in range(3):
        for _ in range(ENDED_RUNS - 1):
            run(garbage, left)
        assert len(left) == ENDED_RUNS - 1
        run(garbage, left)
        assert not left


def test_beside_many_runs_as_many_end_before_the_next_collection(garbage: RunGarbage, left: WeakSet[Circle]) -> None:
    with ExitStack() as under_way:
        for _ in range(3 * ENDED_RUNS):
            under_way.enter_context(garbage.of_run())
        for _ in range(3 * ENDED_RUNS - 1):
            run(garbage, left)
        assert len(left) == 3 * ENDED_RUNS - 1
        run(garbage, left)
        assert not left


def test_a_run_that_fails_counts_as_ended(garbage: RunGarbage, left: WeakSet[Circle]) -> None:
    for _ in range(ENDED_RUNS):
        with suppress(RuntimeError), garbage.of_run():
            left.add(Circle())
            raise RuntimeError
    assert not left


def test_what_was_loaded_before_the_first_end_is_never_looked_at_again(left: WeakSet[Circle]) -> None:
    loaded = Circle()
    left.add(loaded)
    assert any(each is loaded for each in gc.get_objects())
    garbage = RunGarbage()
    for _ in range(2):
        run(garbage, None)
        assert not any(each is loaded for each in gc.get_objects())
    assert gc.get_threshold() == (20_000, 20, 50)
    loaded.own = None
