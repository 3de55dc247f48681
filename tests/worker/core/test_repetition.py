"""A run in a loop: what is one, what only looks like one, and that the model gets a hint first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.shared.delegation import TerminationReason
from deputize.worker.core.limits import LimitReached
from deputize.worker.core.repetition import Repetition
from deputize.worker.models.base import Call
from deputize.worker.tools.base import ToolResult

Seen = tuple[str, ToolResult]
SAME = ToolResult("the same")


def turn(repetition: Repetition, *seen: Seen, **arguments: Any) -> str:
    """One turn; returns the hint. Raises what ends the run."""
    calls = [Call(f"id-{name}", name, {"path": name, **arguments}) for name, _ in seen]
    hint = repetition.watch(calls, [result for _, result in seen])
    repetition.check()
    return hint


def turns(repetition: Repetition, seen: Sequence[Seen]) -> list[str]:
    return [turn(repetition, each) for each in seen]


@pytest.mark.requirement("P-20")
@pytest.mark.parametrize("cycle", [["a"], ["a", "b"], ["a", "b", "c", "d", "e"]])
def test_a_cycle_gets_a_hint_the_fifth_time_and_ends_the_run_the_tenth_time(cycle: list[str]) -> None:
    repetition, seen = Repetition(), [(name, ToolResult(f"of {name}")) for name in cycle * 5]
    *none, hint = turns(repetition, seen)
    assert not any(none)
    assert all(f'- {name} {{"path": "{name}"}}\n  Result: of {name}\n' in hint for name in cycle)
    *again, last = seen
    assert not any(turns(repetition, again))
    with pytest.raises(LimitReached, match="identical calls repeated 10") as reached:
        turn(repetition, last)
    assert reached.value.reason is TerminationReason.LOOP_DETECTED


@pytest.mark.requirement("P-20")
def test_a_hint_that_was_heeded_counts_no_more() -> None:
    repetition = Repetition()
    for _ in range(10):
        assert sum(map(bool, turns(repetition, [("a", SAME)] * 9))) == 1
        turn(repetition, ("something else", SAME))


@pytest.mark.requirement("P-20")
@given(st.integers(1, 40), st.integers(1, 4))
def test_a_reply_counts_once_however_many_equal_calls_it_has(calls: int, times: int) -> None:
    repetition = Repetition()
    assert not any(turn(repetition, *[("a", SAME)] * calls) for _ in range(times))
    hints = turns(repetition, [("a", SAME)] * (5 - times))
    assert [*map(bool, hints)] == [False] * (4 - times) + [True]


@pytest.mark.requirement("P-20")
@pytest.mark.parametrize("command", ["sleep 5", "sleep 1; cat out.log", "for i in 1 2; do sleep 3; done; tail out.log"])
def test_a_turn_that_waits_is_no_repetition(command: str) -> None:
    repetition = Repetition()
    assert not any(turn(repetition, ("bash", SAME), command=command) for _ in range(100))
    assert not any(turns(repetition, [("read_file", SAME)] * 4))


@pytest.mark.requirement("P-20")
def test_looks_between_two_waits_are_polling() -> None:
    repetition = Repetition()
    for _ in range(30):
        assert not any(turns(repetition, [("read_file", SAME), ("grep", SAME)]))
        assert not turn(repetition, ("bash", SAME), command="sleep 0.5")


@pytest.mark.requirement("P-20")
def test_calls_that_differ_in_their_arguments_are_no_cycle() -> None:
    repetition = Repetition()
    assert not any(turn(repetition, ("read_file", SAME), offset=number) for number in range(100))


def test_a_cycle_longer_than_five_turns_is_let_be() -> None:
    assert not any(turns(Repetition(), [(name, ToolResult()) for name in ["a", "b", "c", "d", "e", "f"] * 10]))


@pytest.mark.requirement("P-20")
@pytest.mark.parametrize(
    "changing",
    [
        lambda n: ToolResult(f"{n} of 100"),
        lambda n: ToolResult(error=f"port {n} is busy"),
        lambda n: ToolResult(f"line {n}", error="exit code 1"),
        lambda _: ToolResult("(no new output)", pending=True),
    ],
)
def test_progress_of_any_kind_is_no_cycle(changing: Callable[[int], ToolResult]) -> None:
    seen = [each for n in range(100) for each in (("look", changing(n)), ("test", SAME))]
    assert not any(turns(Repetition(), seen))


def test_what_ended_is_a_cycle_when_it_is_looked_at_again_and_again() -> None:
    repetition, same = Repetition(), ToolResult("(no new output)")
    assert not any(turns(repetition, [("look", replace(same, pending=True))] * 10 + [("look", same)] * 4))
    assert turn(repetition, ("look", same))


def test_where_a_long_result_was_saved_is_no_difference() -> None:
    saved = [ToolResult(f"… [all in out/{n}]", metadata={"fullOutput": f"out/{n}"}) for n in range(5)]
    assert turns(Repetition(), [("build", result) for result in saved])[-1]


def test_long_arguments_and_results_are_cut_in_the_hint() -> None:
    repetition, long = Repetition(), ToolResult("x" * 50_000)
    (hint,) = filter(None, (turn(repetition, ("a", long), text="y" * 50_000) for _ in range(5)))
    assert len(hint) < 1500
