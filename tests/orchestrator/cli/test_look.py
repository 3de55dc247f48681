"""`deputize show`, `list`, `watch`, `cancel`, `prune`, `tools` and `workers`: looking at what is there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deputize.shared.delegation import Step, StepStatus, TerminationReason, Usage
from deputize.shared.events import AskedCall, Heartbeat, ProgressMade, Replied, RunResumed, RunRetried, StepCompleted
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.wire import now
from tests.orchestrator.cli.following import called
from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.fake_service import READ_FILE, FakeService, worker_card
from tests.waiting import until

READ = AskedCall(id="c", name="read_file", arguments={})


async def accepted(service: FakeService, **fields: Any) -> str:
    given = {"task": "Count the files\nall of them", **fields}
    return (await service.create(DelegationRequest.model_validate(given))).delegation.id


def step(**fields: Any) -> Step:
    base = {"id": "s", "type": "read", "title": "read x.py", "status": StepStatus.COMPLETED, "tool_name": "read_file"}
    return Step(**base | {"turn_index": 1, "timestamp": now(), "arguments": {"path": "x.py"}} | fields)


async def test_show_prints_facts_and_then_the_summary(url: str, service: FakeService) -> None:
    id = await accepted(service)
    service.finish(
        id,
        TerminationReason.BUDGET,
        summary="Half of it.",
        errors=["the budget is used up"],
        file_changes=[{"path": "b.py", "change": "renamed", "from": "a.py", "addedLines": 2}],
    )
    done = await called(url, "show", id)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "task       Count the files",
        f"id         {id}",
        "status     failed",
        f"created    {service.runs[id].created_at:%Y-%m-%d %H:%M:%S} UTC",
        "outcome    ✗ failed (budget): 0 turns, 0 tool calls, 0.0 s, 0 tokens, $0.0000",
        "changed    renamed a.py → b.py (+2 -0)",
        "error      the budget is used up",
        "",
        "Half of it.",
    ]
    assert (await called(url, "show", id, "--json")).stdout == service.runs[id].to_json() + "\n"


async def test_show_prints_what_the_summary_states_against_the_facts(url: str, service: FakeService) -> None:
    id = await accepted(service)
    claims = [
        {"claim": "All tests pass", "evidence": "call_2", "verdict": "refuted"},
        {"claim": "wrote `a.py`", "evidence": "call_1", "verdict": "proved"},
        {"claim": "`b.py` changed", "evidence": None, "verdict": "unproved", "why": "it is as it was"},
    ]
    service.finish(id, summary="I wrote `a.py`. All tests pass.", verification={"claims": claims})
    shown = (await called(url, "show", id)).stdout.splitlines()
    assert [line for line in shown if line.startswith("refuted")] == ["refuted    by the run: All tests pass"]
    assert "unproved   by the run: `b.py` changed (it is as it was)" in shown
    assert "outcome    ? unproven (completed, 1 claim refuted): " in "\n".join(shown)


async def test_show_reports_the_progress_of_an_unfinished_one(url: str, service: FakeService) -> None:
    id = await accepted(service)
    assert "progress   turn 0, 0 tool calls" in (await called(url, "show", id)).stdout


async def test_show_prints_events_steps_and_patch(url: str, service: FakeService) -> None:
    id = await accepted(service)
    failed = step(status=StepStatus.FAILED, error="there is no x.py")
    timeout = TerminationReason.TIMEOUT
    for event in (
        RunResumed(worker="w2", from_turn=3, reason="w1 is gone"),
        RunRetried(reason=timeout, error="it took too long", retry=1, of=2, delay_seconds=1),
        Replied(turn=1, text="I read\nit.", stop_reason="tool_use", usage=Usage(), tool_calls=[READ]),
        StepCompleted(step=step(result="x = 1\ny = 2")),
    ):
        service.happen(id, event)
    service.happen(id, StepCompleted(step=failed))
    service.patches[id] = "diff --git a/x b/x\n"
    said = [line.split(maxsplit=3)[2:] for line in (await called(url, "show", id, "--events")).stdout.splitlines()]
    assert said == [
        ["run_queued", "queued: Count the files"],
        ["run_resumed", "taken over by w2 at turn 3: w1 is gone"],
        ["run_retried", "done again from the start in 1.0 s (retry 1 of 2), after timeout: it took too long"],
        ["replied", "I read it. → read_file"],
        ["step_completed", "turn 1  ✓ read x.py  0.0 s"],
        ["step_completed", "turn 1  ✗ read x.py  0.0 s: there is no x.py"],
    ]
    lines = (await called(url, "show", id, "--events", "--json")).stdout.splitlines()
    assert lines == [envelope.to_json() for envelope in service.kept[id]]
    assert (await called(url, "show", id, "--steps")).stdout.splitlines() == [
        "  1  ✓ read_file(path=x.py)",
        "       x = 1 y = 2",
        "  2  ✗ read_file(path=x.py)",
        "       there is no x.py",
    ]
    steps = [json.loads(line) for line in (await called(url, "show", id, "--steps", "--json")).stdout.splitlines()]
    assert [step["status"] for step in steps] == ["success", "failed"]
    assert (await called(url, "show", id, "--patch")).stdout == "diff --git a/x b/x\n"


async def test_show_prints_what_was_made_to_be_handed_over(url: str, service: FakeService) -> None:
    id = await accepted(service)
    service.made[id, "report.md"] = ["old", "new, without a line end"]
    instructions = [{"path": "AGENTS.md", "sha256": "ab" * 32}]
    service.finish(id, artifacts=[{"name": "report.md", "version": 2, "size": 23}], instructions=instructions)
    shown = (await called(url, "show", id)).stdout
    assert "artifact   report.md, version 2, 23 bytes\n" in shown
    assert "instructed AGENTS.md, sha256 abababababab\n" in shown
    assert (await called(url, "show", id, "--artifact", "report.md")).stdout == "new, without a line end"
    none = await called(url, "show", id, "--artifact", "x")
    assert (none.exit_code, none.stdout) == (2, "")
    assert "has no artifact 'x'" in none.stderr


async def test_an_id_may_be_shortened_as_long_as_it_is_one(url: str, service: FakeService) -> None:
    one, two = await accepted(service), await accepted(service)
    length = next(n for n in range(30) if one[: n + 1] != two[: n + 1]) + 1
    assert f"id         {one}" in (await called(url, "show", one[:length])).stdout
    assert f"id         {one}" in (await called(url, "show", one.removeprefix("dlg_")[: length - 4])).stdout
    done = await called(url, "show", one[:8])
    assert done.exit_code == 2
    assert one in done.stderr
    assert two in done.stderr
    assert f"id         {one}" in (await called(url, "show", one[-20:])).stdout
    assert f"id         {two}" in (await called(url, "show", "@last")).stdout
    done = await called(url, "show", "dlg_" + one[-6:])  # with the prefix it is a beginning
    assert done.exit_code == 2
    done = await called(url, "show", "dlg_zzz")
    assert done.exit_code == 2
    assert "deputize list" in done.stderr


async def test_list_is_newest_first_and_filtered(url: str, service: FakeService) -> None:
    old = await accepted(service, task="old", session_id="s", labels={"team": "a"})
    new = await accepted(service, task="new")
    service.finish(new)
    lines = (await called(url, "list")).stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[new, "succeeded"], [old, "queued"]]
    assert lines[1].endswith("ago  old")
    for given in (["--status", "queued"], ["--session", "s"], ["--label", "team:a"]):
        assert [line.split()[0] for line in (await called(url, "list", *given)).stdout.splitlines()] == [old]
    assert (await called(url, "list", "--limit", "2")).stderr == ""
    done = await called(url, "list", "--limit", "1", "--json")
    assert done.stdout == service.runs[new].to_json() + "\n"
    assert done.stderr == "the newest 1; see more with --limit N\n"


async def test_list_goes_on_over_pages(url: str, service: FakeService) -> None:
    for _ in range(501):
        await accepted(service, task="t")
    assert len((await called(url, "list", "--limit", "501")).stdout.splitlines()) == 501


async def test_a_parent_and_its_children_name_each_other(url: str, service: FakeService) -> None:
    parent = await accepted(service, task="parent")
    children = [await accepted(service, task=f"child {number}", parent_id=parent) for number in range(2)]
    service.finish(children[0])
    for _ in ("running", "finished"):
        shown = (await called(url, "show", parent)).stdout.splitlines()
        assert [line for line in shown if line.startswith("child ")] == [
            f"child      ✓ succeeded     child 0  {children[0]}",
            f"child        queued        child 1  {children[1]}",
        ]
        service.finish(parent)
    await accepted(service, task="a later one")
    assert f"parent     {parent}" in (await called(url, "show", children[1])).stdout.splitlines()
    lines = (await called(url, "list")).stdout.splitlines()
    assert [line.partition(" ago  ")[2] for line in lines[1:]] == [
        f"↳ …{parent[-6:]}  child 1",
        f"↳ …{parent[-6:]}  child 0",
        "parent",
    ]


async def test_children_are_found_however_many_others_began_meanwhile(url: str, service: FakeService) -> None:
    parent = await accepted(service, task="parent")
    child = await accepted(service, task="child", parent_id=parent)
    other = service.runs[await accepted(service, task="another")]
    service.runs |= {id: other.model_copy(update={"id": id}) for id in (new_id() for _ in range(6000))}
    assert f"child        queued        child  {child}" in (await called(url, "show", parent)).stdout.splitlines()
    assert [line.split()[0] for line in (await called(url, "list", "--parent", parent)).stdout.splitlines()] == [child]


async def test_the_children_of_all_pages_are_shown(url: str, service: FakeService) -> None:
    parent = await accepted(service, task="parent")
    child = service.runs[await accepted(service, task="child", parent_id=parent)]
    service.runs |= {id: child.model_copy(update={"id": id}) for id in (new_id() for _ in range(500))}
    shown = (await called(url, "show", parent)).stdout.splitlines()
    assert [line.split()[-1] for line in shown if line.startswith("child ")] == sorted(set(service.runs) - {parent})


async def test_cancel_stops_one_several_or_all(url: str, service: FakeService) -> None:
    ids = [await accepted(service) for _ in range(4)]
    done = await called(url, "cancel", ids[0], ids[1])
    assert (done.exit_code, done.stdout) == (0, f"{ids[0]}  cancelled\n{ids[1]}  cancelled\n")
    done = await called(url, "cancel", "--all", "--json")
    assert {json.loads(line)["id"] for line in done.stdout.splitlines()} == {*ids[2:]}
    assert {run.status for run in service.runs.values()} == {"cancelled"}
    assert (await called(url, "cancel", "--all")).stdout == ""


async def test_prune_removes_what_is_finished(url: str, service: FakeService) -> None:
    waits, done = await accepted(service), await accepted(service)
    service.finish(done)
    said = await called(url, "prune")
    assert (said.exit_code, said.stdout) == (0, "0 delegations removed\n")
    said = await called(url, "prune", "--older-than", "0")
    assert (said.exit_code, said.stdout) == (0, "1 delegation removed\n")
    assert [*service.runs] == [waits]
    said = json.loads((await called(url, "prune", "--json")).stdout)
    assert said == {"removed": 0, "freedBytes": 0, "ids": [], "dryRun": False}
    assert (await called(url, "prune", "--older-than", "-1")).exit_code == 2


async def test_a_demo_without_a_sandbox_states_the_reason_once_and_begins_nothing(
    url: str, service: FakeService
) -> None:
    service.fleet = [worker_card(sandbox="no user namespaces")]
    said = await called(url, "demo")
    assert (said.exit_code, said.stdout, said.stderr.count("no user namespaces")) == (1, "", 1)
    assert "doctor shows what is to do" in said.stderr
    assert not service.runs


async def test_tools_and_workers_are_listed(url: str, service: FakeService) -> None:
    assert "deputize up" in (await called(url, "workers")).stderr
    assert "deputize up" in (await called(url, "tools")).stderr
    older = worker_card(name="worker@two", sandbox="no user namespaces", running=3, version="")
    service.fleet = [worker_card(version="0.2.0"), older]
    assert (await called(url, "tools")).stdout == "read_file  read      Reads a file.\n"
    assert (await called(url, "tools", "--json")).stdout == READ_FILE.to_json() + "\n"
    assert (await called(url, "workers")).stdout.splitlines() == [
        "worker@one  0/200 running  scripted  0 tokens, $0.0000  sandbox works  0.2.0",
        "worker@two  3/200 running  scripted  0 tokens, $0.0000  no sandbox: no user namespaces",
    ]
    assert len((await called(url, "workers", "--json")).stdout.splitlines()) == 2


async def test_watching_ids_ends_with_their_results_and_codes(url: str, service: FakeService) -> None:
    one, two = await accepted(service, task="one"), await accepted(service, task="two")
    async with started("watch", one, two, DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == 2, 60)
        service.finish(one, summary="First.")
        service.finish(two, TerminationReason.MAX_TURNS, summary="Second.")
        done = await command.done()
    assert (done.code, done.out) == (5, "First.\nSecond.\n")
    assert "[one] ✓ succeeded" in done.err
    assert "[two] ✗ failed (max_turns)" in done.err


async def test_watching_everything_shows_what_happens_to_anybody(url: str, service: FakeService) -> None:
    old = await accepted(service, task="old")
    service.begin(old)
    async with started("watch", DEPUTIZE_URL=url) as command:
        await until(lambda: service.following, 60)
        new = await accepted(service, task="new")
        service.happen(old, ProgressMade(message="still here"))
        service.finish(new)
        await until(lambda: b"succeeded" in command.err)
        command.interrupt()
        done = await command.done()
    assert (done.code, done.out) == (130, "")
    following, *events = done.err.splitlines()
    assert (following, events[:2]) == (
        "following everything, until Ctrl-C",
        ["[new] queued: new", "[old] still here"],
    )
    assert not service.runs[old].status.finished


async def test_watching_as_json_prints_every_event_on_stdout(url: str, service: FakeService) -> None:
    id = await accepted(service)
    async with started("watch", id, "--json", DEPUTIZE_URL=url) as command:
        await until(lambda: service.following, 60)
        live = service.happen(id, Heartbeat(turn=1, tool_calls=0, elapsed_ms=1))
        service.finish(id)
        done = await command.done()
    first, last = service.kept[id]
    assert done.out.splitlines() == [envelope.to_json() for envelope in (first, live, last)]


async def test_leaving_a_watch_cancels_nothing(url: str, service: FakeService) -> None:
    id = await accepted(service)
    async with started("watch", id, DEPUTIZE_URL=url) as command:
        await until(lambda: service.following, 60)
        command.interrupt()
        done = await command.done()
    assert done.code == 130
    assert not service.runs[id].status.finished


@pytest.mark.parametrize("given", ["../../openapi.json", "dlg_" + "../" * 8 + "xx", "dlg_", "%2e", "@first", "DLG_1"])
async def test_what_cannot_be_an_id_is_not_sent(url: str, service: FakeService, given: str) -> None:
    await accepted(service)
    done = await called(url, "show", given)
    assert done.exit_code == 2
    assert "is not the id of a delegation" in done.stderr


async def test_the_last_one_is_no_subagents_however_many_these_are(url: str, service: FakeService) -> None:
    parent = await accepted(service, task="parent")
    for number in range(30):
        await accepted(service, task=f"child {number}", parent_id=parent)
    assert f"id         {parent}" in (await called(url, "show", "@last")).stdout.splitlines()


async def test_the_last_of_none_is_reported(url: str) -> None:
    done = await called(url, "show", "@last")
    assert done.exit_code == 2
    assert "no delegation yet" in done.stderr


@pytest.mark.parametrize("ids", [["dlg_" + "0" * 26], ["dlg_0"]], ids=["whole", "short"])
async def test_watching_what_is_not_there_ends_with_2(url: str, ids: list[str]) -> None:
    assert (await called(url, "watch", *ids)).exit_code == 2


async def test_a_diff_is_its_counts_among_the_steps(url: str, service: FakeService) -> None:
    id = await accepted(service, task="x")
    diff = "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,3 @@\n-old\n+new\n+more\n same\n"
    for text in (diff, "--- no diff\n+ but a list"):
        how: dict[str, Any] = {"type": "edit", "tool_name": "edit_file", "status": StepStatus.COMPLETED}
        edited = Step(id="s", title="edit x.py", turn_index=1, timestamp=now(), result=text, **how)
        service.happen(id, StepCompleted(step=edited))
    lines = (await called(url, "show", id, "--steps")).stdout.splitlines()
    assert [line.strip() for line in lines[1::2]] == ["+2 -1", "--- no diff + but a list"]


MB = 10**6


async def finished(service: FakeService, disk: int | None) -> str:
    id = (await service.create(DelegationRequest(task="x"))).delegation.id
    service.finish(id, summary="Done.")
    service.runs[id] = service.runs[id].model_copy(update={"disk_bytes": disk})
    return id


async def test_list_has_the_total_and_show_the_size(url: str, service: FakeService) -> None:
    ids = [await finished(service, disk) for disk in (None, 0, 40 * MB, 1600 * MB)]
    said = await deputize("list", "--limit", "1", DEPUTIZE_URL=url)
    assert len(said.out.splitlines()) == 1
    assert said.err == (
        "the newest 1; see more with --limit N\n"
        "2 finished delegations keep 1.6 GB on disk (at most 32 GiB); `deputize prune --keep-bytes SIZE` removes the "
        "oldest\n"
    )
    shown = [(await deputize("show", id, DEPUTIZE_URL=url)).out.splitlines() for id in ids]
    assert [[line for line in lines if line.startswith("on disk")] for lines in shown] == [
        [],
        ["on disk    its files were removed"],
        ["on disk    40 MB"],
        ["on disk    1.6 GB"],
    ]


async def test_prune_by_size_removes_the_oldest_and_a_dry_run_nothing(url: str, service: FakeService) -> None:
    ids = [await finished(service, 40 * MB) for _ in range(3)]
    dry = await deputize("prune", "--keep-bytes", "100MB", "--dry-run", DEPUTIZE_URL=url)
    assert dry.out == f"1 delegation would be removed, 40 MB on disk\n  {ids[0]}\n"
    assert [*service.runs] == ids
    done = await deputize("prune", "--keep-bytes", "0.05 GB", DEPUTIZE_URL=url)
    assert done.out == "2 delegations removed, 80 MB on disk\n"
    assert [*service.runs] == ids[2:]


@pytest.mark.parametrize(
    ("given", "removed"), [("0", 1), ("0s", 1), ("1d", 0), ("15min", 0), ("2w", 0), ("1.5h", 0), ("0.0", 1)]
)
async def test_an_age_is_seconds_or_has_a_unit(url: str, service: FakeService, given: str, removed: int) -> None:
    await finished(service, None)
    plural = "" if removed == 1 else "s"
    assert (
        await deputize("prune", "--older-than", given, DEPUTIZE_URL=url)
    ).out == f"{removed} delegation{plural} removed\n"


@pytest.mark.parametrize("given", ["1y", "d", "-1d", "1 d 2 h", "nan", "inf", "1e400", ""])
@pytest.mark.parametrize("option", ["--older-than", "--keep-bytes"])
async def test_another_amount_is_refused_by_the_options_name(
    url: str, service: FakeService, option: str, given: str
) -> None:
    await finished(service, MB)
    said = await deputize("prune", option, given, DEPUTIZE_URL=url)
    assert (said.code, option in said.err, len(service.runs)) == (2, True, 1)


REVIEWED: dict[str, tuple[dict[str, Any], str]] = {
    "verified, small": ({"verdict": "verified", "lines": 3}, "+3 -0 in 1 file"),
    "verified, large": ({"verdict": "verified", "lines": 40}, "+40 -0 in 1 file"),
    "verified, denied": ({"verdict": "verified", "lines": 1, "denied": 2}, "+1 -0 in 1 file, 2 calls denied"),
    "verified, protected": (
        {"verdict": "verified", "lines": 2, "restored": ["test_a.py"]},
        "+2 -0 in 1 file, 1 protected path changed",
    ),
    "unverified": ({"verdict": "unverified", "lines": 1}, "+1 -0 in 1 file"),
    "refuted": ({"verdict": "refuted", "lines": 1}, "+1 -0 in 1 file"),
}


async def test_results_for_a_review_are_listed_by_what_speaks_against_them(url: str, service: FakeService) -> None:
    change: dict[str, Any] = {"path": "a.py", "change": "modified"}
    for title, (facts, _) in REVIEWED.items():
        id = await accepted(service, task=title)
        change["addedLines"] = facts["lines"]
        found = {"verdict": facts["verdict"], "restored": facts.get("restored", [])}
        denied = facts.get("denied", 0)
        service.finish(id, file_changes=[change], verification=found, denied_call_count=denied)
    service.finish(await accepted(service, task="nothing changed"))
    service.finish(await accepted(service, task="cancelled"), TerminationReason.CANCELLED, file_changes=[change])
    await accepted(service, task="queued")
    lines = (await called(url, "list", "--for-review")).stdout.splitlines()
    expected = [f"{why}  {title}" for title, (_, why) in REVIEWED.items()]
    assert [line.split(" ago  ")[1] for line in lines] == expected
    done = await called(url, "list", "--for-review", "--json", "--limit", "2")
    assert "the first 2" in done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["request"]["task"], each["reason"]) for each in found] == [
        (title, why) for title, (_, why) in [*REVIEWED.items()][:2]
    ]
