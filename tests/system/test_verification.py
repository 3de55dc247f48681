"""A worker killed in the middle of a verification: another one makes it again, and nothing of the first is left."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from deputize.shared.delegation import ToolAgentResult
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet
from tests.waiting import until
from tests.worker.verification.held import grounds_in

GOOD, BAD = call("write_file", path="a.txt", content="good\n"), call("write_file", path="a.txt", content="bad\n")
CANARY = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-good\n+broken\n"
HELD = {"kind": "command", "run": "until [ -e go ]; do sleep 0.05; done; grep good a.txt", "canary": CANARY}
"""Waits until the test lets it go on."""
GROUNDS = ("base", "candidate", "canary")


def let_go(fleet: Fleet, id: str, names: Sequence[str] = GROUNDS) -> None:
    for name in names:
        for path in grounds_in(fleet.settings.workspaces, id, name):
            with suppress(FileNotFoundError):  # removed meanwhile
                (path / "go").touch()


async def ended(fleet: Fleet, id: str) -> ToolAgentResult:
    async def there() -> ToolAgentResult | None:
        let_go(fleet, id)
        return (await fleet.service.get(id)).result

    return await until(there, 90)


@pytest.mark.costly
@pytest.mark.system
@pytest.mark.parametrize("on", GROUNDS)
async def test_a_worker_killed_on_any_ground_is_replaced_and_the_model_is_not_asked_again(
    fleet: Fleet, tmp_path: Path, on: str
) -> None:
    await fleet.start("1")
    id = await fleet.hand_over(model=script(tmp_path, [GOOD], [say("done")]), verify=[HELD])

    def running() -> bool:
        let_go(fleet, id, GROUNDS[: GROUNDS.index(on)])
        return bool(grounds_in(fleet.settings.workspaces, id, on))

    await until(running, 60)
    await fleet.start("2")
    await fleet.kill("1")
    result = await ended(fleet, id)
    events = [envelope.event.type for envelope in await fleet.service.events(id)]
    assert (result.verification.verdict, result.success, result.attempts) == ("verified", True, 2)
    assert (events.count("replied"), events.count("run_finished")) == (2, 1)
    assert [*fleet.settings.workspaces.glob(f"{id}.*")] == []


@pytest.mark.costly
@pytest.mark.system
async def test_a_worker_killed_when_a_result_has_gone_back_costs_no_round(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.start("1")
    hold = {"blocks": [GOOD], "delay": 3}
    model = script(tmp_path, [BAD], [say("done")], hold, [say("done now")])
    id = await fleet.hand_over(model=model, verify=[HELD], max_verify_rounds=1)

    async def second_round() -> bool:
        let_go(fleet, id)
        events = await fleet.service.events(id)
        return [envelope.event.type for envelope in events].count("turn_started") == 3

    await until(second_round, 60)
    await fleet.start("2")
    await fleet.kill("1")
    result = await ended(fleet, id)
    assert (result.verification.verdict, result.verification.rounds) == ("verified", 1)
    assert (result.summary, result.turn_count) == ("done now", 4)
