"""Typed output through crashes: killed between any two writes, a run ends with the same output and asks for it once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import Step
from deputize.shared.events import Envelope, StepCompleted, StepStarted
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.runs.cut import carry_out_cut
from tests.sampling import sampled
from tests.worker.run_history import answered_once, history_of
from tests.worker.typed_output import HAND_IN, INVOICE, LOOK, VALID, facts

WRONG = call("submit_result", total="?")
WORDS = say("It is 12.5.")
"""Words before a call are published, which divides the writes of its reply in two."""
RUNS: dict[str, tuple[list[Any], dict[str, int], str]] = {
    "a call": ([[LOOK], [WORDS, WRONG], [WORDS, HAND_IN]], {}, "completed"),
    "a call before others": ([[LOOK], [HAND_IN, LOOK, HAND_IN]], {}, "completed"),
    "the last turn": ([[LOOK], [WORDS, HAND_IN]], {"max_turns": 1}, "max_turns"),
    "the last turn after an error": ([[WORDS, WRONG], [WORDS, HAND_IN]], {"max_turns": 1}, "max_turns"),
    "after words": ([[WORDS], [WORDS, HAND_IN]], {}, "completed"),
    "forced after words": ([[WORDS], [WORDS], [WORDS, HAND_IN]], {}, "completed"),
}


@pytest.fixture(params=["", '[[rule]]\nname = "all"\ndecision = "allow"\nreason = "it may"\n'], ids=["", "with rules"])
async def judging(redis_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """A bench; where a thread judges calls by rules, a write ends between a reply and the results of its calls."""
    rules = tmp_path / "rules.toml"
    rules.write_text(request.param)
    async with open_bench(redis_url, tmp_path / "home", policy=[rules] if request.param else ()) as bench:
        yield bench


def after_handing_in(events: list[Envelope]) -> list[str]:
    """The types of the events after the end of the valid call."""
    ended = [isinstance(each.event, StepCompleted) and is_valid(each.event.step) for each in events]
    return [each.event.type for each in events[ended.index(True) + 1 :]]


def is_valid(step: Step) -> bool:
    return step.tool_name == "submit_result" and not step.error


@pytest.mark.parametrize(("turns", "limits", "reason"), sampled(RUNS, 3))
@pytest.mark.costly
async def test_a_run_killed_between_any_two_writes_hands_in_once(
    judging: Bench, tmp_path: Path, turns: list[Any], limits: dict[str, int], reason: str
) -> None:
    bench = judging
    model = script(tmp_path, *turns, [call("submit_result", total=-1)])
    request = DelegationRequest(task="do it", model=model, output_schema=INVOICE, limits=Limits(**limits))
    writes = 0
    for writes in count(1):
        id, was_cut = await carry_out_cut(bench, request, writes)
        result = await bench.result(id)
        assert facts(result) == (reason, VALID, "valid"), writes
        steps = await bench.steps(id)
        assert [step.id for step in steps] == [event.step.id for event in await bench.seen(id, StepStarted)], writes
        assert len({step.id for step in steps}) == len(steps), writes
        assert [*map(is_valid, steps)].count(True) == 1, writes
        assert answered_once(await history_of(bench, result)), writes
        assert "turn_started" not in after_handing_in(await bench.events(id)), writes
        if not was_cut:
            break
    assert writes > len(turns)
