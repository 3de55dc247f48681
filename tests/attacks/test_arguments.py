"""Whatever stands in the arguments of a call: it is answered, and the run goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.attacks.stage import Stage
from tests.contracts.tool_samples import SAMPLES
from tests.runs.bench import call

pytestmark = pytest.mark.system
TEXTS = (
    *("\0", "x\0--bind\0/\0/tmp", "\n", "\x1b[2J", "\u202e", "-rf", "~root", "$(id)", "*", "//", "a/../.."),
    *("/proc/1/root/x", "/proc/self/fd/0", "x" * 5000, "x/" * 3000, "../" * 2000, "(" * 500, "**/" * 200, "{a,b}" * 40),
)
VALUES: tuple[Any, ...] = (None, -1, 2**70, [[[["x"]]]], {"a": {"b": "c"}}, ["\0"])
TOOLS = ("read_file", "write_file", "edit_file", "grep", "glob", "read_many_files", "bash", "create_artifact")


def nasty() -> list[dict[str, Any]]:
    """Each tool with each text or value in each of its arguments."""
    return [
        call(name, **{**SAMPLES[name], argument: value})
        for name in TOOLS
        for argument in SAMPLES[name]
        for value in (*TEXTS, *VALUES)
    ]


@pytest.mark.costly
async def test_no_text_ends_a_run_or_a_worker(ordinary: Stage) -> None:
    calls = nasty()
    outcome = await ordinary.attack(calls, [call("bash", command="echo fine")], wait=120)
    assert outcome.result.termination_reason == "completed", outcome.result.errors
    assert outcome.result.attempts == 1
    assert len(outcome.steps) == len(calls) + 1
    assert [each for each in outcome.answers() if "failed inside" in each] == []
    assert outcome.answers()[-1] == "fine"
