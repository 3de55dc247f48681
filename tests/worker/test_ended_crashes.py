"""A worker that is killed between any two writes of a run: what ended its work is not asked of the model again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.request import DelegationRequest
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.runs.cut import carry_out_cut
from tests.runs.totals import check_totals
from tests.sampling import sampled

LOOK = call("bash", command="echo x > a.txt")
NO_MORE = "Nothing more to say."
"""What a script answers after its end."""
CHECK = {"kind": "command", "run": "grep x a.txt"}
RUNS: dict[str, tuple[list[Any], dict[str, Any], tuple[str, str, int]]] = {
    "words": ([[LOOK], [say("Done.")]], {}, ("completed", "Done.", 2)),
    "checked": ([[LOOK], [say("Done.")]], {"verify": [CHECK]}, ("completed", "Done.", 2)),
    "checked at a limit": ([[LOOK]], {"verify": [CHECK], "limits": {"max_turns": 1}}, ("max_turns", NO_MORE, 1)),
}


@pytest.fixture
async def bench(redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(redis_url, tmp_path / "home") as bench:
        yield bench


@pytest.mark.parametrize(("turns", "asked", "expected"), sampled(RUNS, 3))
async def test_a_run_killed_between_any_two_writes_ends_as_its_model_did(
    bench: Bench, tmp_path: Path, turns: list[Any], asked: dict[str, Any], expected: tuple[str, str, int]
) -> None:
    model = script(tmp_path, *turns, *[[say("asked again")]] * 2)
    request = DelegationRequest.model_validate({"task": "do it", "model": model} | asked)
    writes = 0
    for writes in count(1):
        id, was_cut = await carry_out_cut(bench, request, writes)
        result = await bench.result(id)
        reason, summary, turn_count = expected
        assert (result.termination_reason, result.turn_count) == (reason, turn_count), writes
        assert result.summary == summary, writes
        assert not request.verify or result.verification.verdict == "verified", writes
        if not was_cut:
            break
    assert writes > len(turns) + 1
    assert (await check_totals(bench.store.redis))["deputize_leases_lost_total",] == writes - 1
