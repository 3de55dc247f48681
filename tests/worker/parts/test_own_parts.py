"""Parts that a worker is started with: in their order behind our own, and a failure costs no result."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deputize.shared.delegation import ToolAgentResult
from deputize.worker.attempts import Attempt
from deputize.worker.core.outcome import RunOutcome
from deputize.worker.core.part import Part, Work
from tests.runs.bench import open_bench, say, script


@dataclass
class Noted:
    """What parts were called for, in order."""

    calls: list[str] = field(default_factory=list[str])


class Noting(Part):
    """Notes its hooks, fails in one of them, and lets the loop go on once."""

    def __init__(self, name: str, noted: Noted, fails: str = "", again: int = 0) -> None:
        self.name, self.noted, self.fails, self.again = name, noted, fails, again

    def note(self, hook: str) -> None:
        self.noted.calls.append(f"{hook} {self.name}")
        if hook == self.fails:
            raise RuntimeError("broken")

    async def begin(self, work: Work) -> RunOutcome | None:
        self.loop = work.loop
        self.note("begin")
        return None

    async def settle(self, outcome: RunOutcome) -> RunOutcome | None:
        self.note("settle")
        if self.again:
            self.again -= 1
            assert self.loop
            self.loop.conversation.ask("Go on.")
            return None
        return outcome

    async def end(self) -> None:
        self.note("end")

    async def complete(self, result: ToolAgentResult, outcome: RunOutcome) -> ToolAgentResult:
        self.note("complete")
        return result


async def carried_out(redis_url: str, folder: Path, noted: Noted, fails: str = "", again: int = 0) -> ToolAgentResult:
    def first(attempt: Attempt) -> Part:
        return Noting("a", noted, fails, again)

    def second(attempt: Attempt) -> Part:
        return Noting("b", noted)

    async with open_bench(redis_url, folder / "home", parts=[first, second]) as bench:
        return await bench.run(model=script(folder, [say("One.")], [say("Two.")]))


async def test_parts_are_called_in_their_order(redis_url: str, tmp_path: Path) -> None:
    result = await carried_out(redis_url, tmp_path, noted := Noted())
    hooks = ("begin", "settle", "end", "complete")
    assert noted.calls == [f"{hook} {name}" for hook in hooks for name in "ab"]
    assert (result.success, result.summary) == (True, "One.")


async def test_a_part_lets_the_loop_go_on_before_those_behind_it_are_asked(redis_url: str, tmp_path: Path) -> None:
    result = await carried_out(redis_url, tmp_path, noted := Noted(), again=1)
    assert [call for call in noted.calls if "settle" in call] == ["settle a", "settle a", "settle b"]
    assert (result.success, result.summary, result.turn_count) == (True, "Two.", 2)


@pytest.mark.parametrize("fails", ["begin", "settle", "end"])
async def test_a_part_that_fails_at_work_ends_the_run_with_a_result(redis_url: str, tmp_path: Path, fails: str) -> None:
    result = await carried_out(redis_url, tmp_path, noted := Noted(), fails)
    assert result.termination_reason == "error"
    assert "RuntimeError('broken')" in result.summary
    assert noted.calls[-4:] == ["end a", "end b", "complete a", "complete b"]


async def test_a_part_that_fails_at_the_result_costs_none(redis_url: str, tmp_path: Path) -> None:
    result = await carried_out(redis_url, tmp_path, noted := Noted(), "complete")
    assert (result.success, result.summary) == (True, "One.")
    assert result.errors == ["Noting failed: RuntimeError('broken')"]
    assert noted.calls[-2:] == ["complete a", "complete b"]
