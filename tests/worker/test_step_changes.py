"""What each step of a run changed in its files is in the step's event, also where workers were lost in between."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from deputize.shared.delegation import Step
from deputize.shared.event_size import MAX_EVENT_BYTES
from deputize.shared.request import DelegationRequest
from deputize.worker.workspace.generation import Generation
from deputize.worker.workspace.snapshots import History
from tests.runs.bench import Bench, bench, call, open_bench, say, script
from tests.runs.cut import carry_out_cut

__all__ = ["bench"]


def changes(step: Step) -> list[tuple[str, str]]:
    return [(each.change, each.path) for each in step.changes]


async def test_a_step_has_what_it_changed_whatever_changed_it(bench: Bench, tmp_path: Path) -> None:
    model = script(
        tmp_path,
        [call("write_file", path="a.txt", content="one\n"), call("read_file", path="a.txt")],
        [call("bash", command="echo two >> a.txt; echo x > b"), call("bash", command="true; false")],
        [call("bash", command="rm b; exit 3")],
        [say("Done.")],
    )
    written, read, commanded, nothing, failed = await bench.steps(await bench.run(model=model))
    assert changes(written) == [("created", "a.txt")]
    assert written.diff.endswith("@@ -0,0 +1 @@\n+one\n")
    assert {*changes(commanded)} == {("modified", "a.txt"), ("created", "b")}
    assert "@@ -1 +1,2 @@\n one\n+two\n" in commanded.diff
    assert (changes(failed), failed.changes[0].removed) == ([("deleted", "b")], 1)
    for step in (read, nothing):
        assert not {"changes", "moreChanges", "diff"} & step.to_dict().keys()


async def test_a_diff_of_a_step_shows_no_secret_and_fits_its_event(redis_url: str, tmp_path: Path) -> None:
    secret = "sk-ant-0123456789abcdef"
    command = f"yes {secret} | head -c 200000 > a; for i in $(seq 300); do echo {secret} > long-name-$i; done"
    async with open_bench(redis_url, tmp_path / "home", token=secret) as bench:
        model = script(tmp_path, [call("bash", command=command)], [say("Done.")])
        result = await bench.run(model=model)
        (step,) = await bench.steps(result)
        assert (len(step.changes), step.more_changes) == (100, 201)
        assert step.diff
        events = [event.to_json() for event in await bench.events(result)]
    assert not any("0123456789" in event for event in events)
    assert max(len(event.encode()) for event in events) <= MAX_EVENT_BYTES


TURNS: list[Any] = [
    [call("write_file", path="a.txt", content="one\n")],
    [call("bash", command="echo two >> a.txt; echo x > b"), call("bash", command="mv b c")],
    [call("edit_file", path="a.txt", old_string="one", new_string="1")],
    [say("Done.")],
]
STEPS = [
    {("created", "a.txt")},
    {("modified", "a.txt"), ("created", "b")},
    {("renamed", "c")},
    {("modified", "a.txt")},
]
BEFORE = [set[str](), {"a.txt"}, {"a.txt", "c"}, {"a.txt", "c"}]


async def test_of_a_worker_killed_between_any_two_writes_no_change_is_lost_or_reported_twice(
    bench: Bench, tmp_path: Path
) -> None:
    request = DelegationRequest(task="do it", model=script(tmp_path, *TURNS))
    writes = 0
    for writes in count(1):
        id, was_cut = await carry_out_cut(bench, request, writes)
        assert (await bench.result(id)).success, writes
        assert [{*changes(step)} for step in await bench.steps(id)] == STEPS, writes
        latest = Generation.latest(bench.settings.workspaces / id)
        assert latest is not None
        for turn, paths in enumerate(BEFORE, 1):
            state = History.before(latest.log, turn).state
            assert {path for path, kept in state.items() if kept} == paths, (writes, turn)
        if not was_cut:
            break
    assert writes > len(STEPS)


async def test_what_a_background_command_has_changed_is_known_before_the_next_turn(
    bench: Bench, tmp_path: Path
) -> None:
    command = "sleep 0.3; echo x > late; echo ready; exec sleep 1234"
    model = script(
        tmp_path,
        [call("bash", command=command, run_in_background=True)],
        [call("bash_output", bash_id=r"{{result:1 /Bash ID: (\w+)/}}")],  # takes no snapshot
        [say("Done.")],
    )
    result = await bench.run(model=model)
    latest = Generation.latest(bench.settings.workspaces / result.delegation_id)
    assert latest is not None
    assert "late" in History.before(latest.log, 3).state
