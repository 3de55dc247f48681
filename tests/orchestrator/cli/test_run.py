"""`deputize run`, as a process: what it sends, what it prints where, once and of bounded length, and how it ends."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import subprocess
import termios
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.sockets import free_port
from deputize.shared.delegation import Step, StepStatus, TerminationReason, Usage
from deputize.shared.events import ErrorSeen, Heartbeat, Replied, RunStarted, StepCompleted, StepStarted
from deputize.shared.wire import now
from tests.orchestrator.cli.following import run
from tests.orchestrator.command_line import deputize, environment, started
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.serving import served, settings
from tests.waiting import until


def step(status: StepStatus = StepStatus.COMPLETED) -> Step:
    return Step(
        id="s", type="read", title="read x.py", status=status, tool_name="read_file", turn_index=1, timestamp=now()
    )


async def test_the_summary_goes_to_stdout_and_what_happens_to_stderr(url: str, service: FakeService) -> None:
    def work(id: str) -> None:
        event = RunStarted(worker="w@1", model="claude", tools=[], limits=service.runs[id].effective_limits)
        service.happen(id, event)
        service.happen(id, StepCompleted(step=step()))
        service.finish(id, summary="Forty-two.", file_changes=[{"path": "a.py", "change": "modified"}])

    done = await run(url, service, "Count it", "--no-workspace", then=work)
    assert (done.code, done.out) == (0, "Forty-two.\n")
    (id,) = service.runs
    *said, fetch = re.sub(r"\d\.\d s", "0.0 s", done.err).splitlines()
    assert fetch.startswith("  to fetch its files: ")
    assert fetch.replace("'", "").endswith(f"deputize pull {id}")
    assert said == [
        id,
        "queued: Count it",
        "running on w@1 with claude",
        "turn 1  ✓ read x.py  0.0 s",
        "✓ succeeded (completed): 0 turns, 0 tool calls, 0.0 s, 0 tokens, $0.0000",
        "  modified a.py (+0 -0)",
    ]


@pytest.mark.parametrize(("reason", "code"), [("error", 1), ("cancelled", 4), ("max_turns", 5)])
async def test_the_exit_code_shows_how_it_ended(url: str, service: FakeService, reason: str, code: int) -> None:
    end = TerminationReason(reason)
    done = await run(url, service, "x", then=lambda id: service.finish(id, end, summary="half of it"))
    assert (done.code, done.out) == (code, "half of it\n")


WHY = "model m cannot be used: HTTP 401. Check ANTHROPIC_API_KEY."


async def test_the_reason_of_a_failure_is_shown_once(url: str, service: FakeService) -> None:
    def fail(id: str) -> None:
        service.happen(id, ErrorSeen(message="the tools of `x` are missing", kind="tools_missing"))
        service.happen(id, ErrorSeen(message=WHY, kind="model_unavailable"))
        errors = ["the tools of `x` are missing", WHY]
        service.finish(id, TerminationReason.MODEL_UNAVAILABLE, summary=WHY, errors=errors)

    done = await run(url, service, "x", then=fail)
    assert (done.code, done.out) == (1, WHY + "\n")
    assert WHY not in done.err
    assert "  error: the tools of `x` are missing" in done.err.splitlines()
    (id,) = service.runs
    shown = await deputize("show", id, DEPUTIZE_URL=url)
    assert shown.out.count(WHY) == 1
    watched = await deputize("watch", id, DEPUTIZE_URL=url)
    assert (watched.out + watched.err).count(WHY) == 1


async def test_while_every_worker_drains_it_is_queued_with_that_reason(url: str, service: FakeService) -> None:
    service.fleet = [worker_card(draining=True)]
    done = await run(url, service, "x", then=service.finish)
    assert "queued for now: every worker is draining; start them again (`deputize stop`" in done.err


async def test_as_json_the_whole_result_is_one_line(url: str, service: FakeService) -> None:
    done = await run(url, service, "x", "--json", then=lambda id: service.finish(id, summary="a\nb"))
    (id,) = service.runs
    assert done.out.count("\n") == 1
    assert json.loads(done.out) == service.runs[id].to_dict()["result"]


async def test_without_an_answer_it_ends_with_3_and_suggests_a_way_out(tmp_path: Path) -> None:
    done = await deputize("run", "x", DEPUTIZE_URL=f"http://127.0.0.1:{free_port()}")
    assert done.code == 3
    assert "deputize up" in done.err


async def test_with_a_wrong_token_or_setting_it_ends_with_3() -> None:
    async with served(FakeService(), settings(token="right")) as url:
        done = await deputize("run", "x", DEPUTIZE_URL=url, DEPUTIZE_TOKEN="wrong")
        assert done.code == 3
        assert "DEPUTIZE_TOKEN" in done.err
        assert (await deputize("list", DEPUTIZE_URL=url, DEPUTIZE_TOKEN="right")).code == 0
    done = await deputize("list", DEPUTIZE_PORT="many")
    assert done.code == 3
    assert "port" in done.err


async def test_a_refusal_lists_every_mistake(url: str, service: FakeService) -> None:
    from deputize.shared.errors import Invalid

    mistakes = [{"pointer": "/tools/0", "detail": "unknown"}, {"pointer": "/tools/1", "detail": "unknown too"}]
    service.away = Invalid("2 mistakes", mistakes)
    done = await deputize("run", "x", DEPUTIZE_URL=url)
    assert done.code == 2
    assert "  --tools, item 1: unknown" in done.err
    assert "  --tools, item 2: unknown too" in done.err


async def test_when_the_wait_is_over_the_work_goes_on(url: str, service: FakeService) -> None:
    done = await deputize("run", "x", "--wait", "0.1", DEPUTIZE_URL=url)
    (id,) = service.runs
    assert (done.code, done.out) == (124, "")
    assert f"deputize watch {id}" in done.err
    assert not service.runs[id].status.finished


@pytest.mark.parametrize("arguments", [["run"], ["run", "-"], ["run", "--request", "-"], ["batch", "-"]], ids=" ".join)
async def test_an_interrupt_ends_a_command_that_reads_standard_input(
    url: str, service: FakeService, arguments: list[str]
) -> None:
    ours, theirs = os.pipe()
    try:
        async with started(*arguments, stdin=ours, DEPUTIZE_URL=url) as command:
            os.write(theirs, b"a")
            await until(lambda: fcntl.ioctl(ours, termios.FIONREAD, bytes(4)) == bytes(4), 60)  # it waits for more
            command.interrupt()
            done = await command.done(20)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.code, done.out, service.runs) == (130, "", {})


async def test_the_first_interrupt_detaches_and_shows_how_to_come_back(url: str, service: FakeService) -> None:
    async with started("run", "x", DEPUTIZE_URL=url) as command:
        await until(lambda: service.following, 60)
        command.interrupt()
        done = await command.done()
    (id,) = service.runs
    assert (done.code, done.out) == (130, "")
    assert f"deputize watch {id}" in done.err
    assert not service.runs[id].status.finished
    assert "Traceback" not in done.err


async def test_the_second_interrupt_cancels(url: str, service: FakeService) -> None:
    async with started("run", "x", DEPUTIZE_URL=url) as command:
        await until(lambda: service.following, 60)
        command.interrupt()
        await until(lambda: b"Ctrl-C again" in command.err)
        command.interrupt()
        done = await command.done()
    (id,) = service.runs
    assert done.code == 130
    assert f"deputize watch {id}" in done.err
    assert f"cancelled: {id}" in done.err
    assert "Traceback" not in done.err
    assert service.runs[id].status == "cancelled"


async def test_detached_it_prints_the_id_and_leaves(url: str, service: FakeService) -> None:
    done = await deputize("run", "x", "--detach", DEPUTIZE_URL=url)
    (id,) = service.runs
    assert (done.code, done.out) == (0, f"{id}\n")
    done = await deputize("run", "x", "--detach", "--json", DEPUTIZE_URL=url)
    assert json.loads(done.out)["status"] == "queued"


async def test_it_reports_at_once_that_no_worker_is_there(url: str, service: FakeService) -> None:
    done = await deputize("run", "x", "--detach", DEPUTIZE_URL=url)
    assert "no worker is alive" in done.err
    assert "deputize up" in done.err
    service.fleet = [worker_card()]
    assert "no worker" not in (await deputize("run", "x", "--detach", DEPUTIZE_URL=url)).err


async def test_a_worker_of_another_version_is_named(url: str, service: FakeService) -> None:
    service.fleet = [worker_card(), worker_card(name="worker@two", version="99.1")]
    assert "worker worker@two 99.1" in (await run(url, service, "x", "--tools", "read_file")).err
    service.fleet = [worker_card(), worker_card(name="worker@two")]
    assert "99.1" not in (await run(url, service, "x")).err


async def test_a_limit_above_the_cap_is_reported(url: str, service: FakeService) -> None:
    done = await run(url, service, "x", "--max-turns", "5000", "--timeout", "1000000")
    assert "maxTurns 5000 is above the server's cap; 200 holds" in done.err
    assert "timeoutSeconds 1000000 is above" in done.err


async def test_a_script_is_never_passed_off_as_a_model(url: str, service: FakeService) -> None:
    def work(id: str) -> None:
        event = RunStarted(worker="w", model="scripted", tools=[], limits=service.runs[id].effective_limits)
        service.happen(id, event)
        service.finish(id)

    done = await run(url, service, "x", then=work)
    assert "not a language model" in done.err


async def test_on_a_terminal_a_table_moves_and_the_result_goes_elsewhere(url: str, service: FakeService) -> None:
    ours, theirs = pty.openpty()
    drawn = bytearray()
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, lambda: drawn.extend(os.read(ours, 65536)))
    here: dict[str, Any] = {"DEPUTIZE_URL": url, "COLUMNS": "100", "TERM": "xterm-256color"}
    try:
        async with started("run", "Count it", stderr=theirs, **here) as command:
            await until(lambda: service.following, 60)
            (id,) = service.runs
            limits = service.runs[id].effective_limits
            service.happen(id, RunStarted(worker="w", model="claude", tools=[], limits=limits))
            service.happen(id, StepStarted(step=step(StepStatus.RUNNING)))
            service.happen(id, Replied(turn=1, stop_reason="tool_use", usage=Usage(cost_usd=0.5)))
            await until(lambda: b"read x.py" in drawn)
            service.happen(id, Heartbeat(turn=7, tool_calls=1, elapsed_ms=61_000, cost_usd=0.5))
            await until(lambda: b"1 min 0" in drawn)
            service.finish(id, summary="Forty-two.", turn_count=8)
            assert (await command.done()).out == "Forty-two.\n"
        await until(lambda: b"succeeded" in drawn)
    finally:
        loop.remove_reader(ours)
        os.close(ours)
        os.close(theirs)
    assert b"\x1b[36m" in drawn  # running is cyan
    assert re.search(rb"\x1b\[\dA", drawn)  # the cursor goes back up
    for said in ("Count it", "running", "… read x.py", "$0.5000"):
        assert said.encode() in drawn


async def test_without_a_terminal_nothing_is_coloured_or_redrawn(url: str, service: FakeService) -> None:
    done = await run(url, service, "x", then=lambda id: service.finish(id, TerminationReason.ERROR), TERM="xterm")
    assert "\x1b" not in done.out + done.err


async def test_tools_that_would_be_refused_are_reported_before_the_work(url: str, service: FakeService) -> None:
    service.fleet = [worker_card(sandbox="no user namespaces")]
    done = await run(url, service, "x", "--no-workspace")
    warning, id, *_ = done.err.splitlines()
    assert warning.startswith("warning: commands and changes of files will be refused")
    assert "no user namespaces" in warning
    assert id.startswith("dlg_")
    assert "warning" not in (await run(url, service, "x", "--tools", "read_file")).err


PATCH = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new\n"


@pytest.mark.parametrize("folder", ["plain", "repository", "repository/be low"])
async def test_the_command_that_takes_the_changes_over_does_it(
    url: str, service: FakeService, tmp_path: Path, folder: str
) -> None:
    work = tmp_path / folder
    work.mkdir(parents=True)
    work.joinpath("a.txt").write_text("old\n")
    if "repository" in folder:
        subprocess.run(["git", "init", "-q", tmp_path / "repository"], check=True)

    def finish(id: str) -> None:
        service.patches[id] = PATCH
        service.finish(id, summary="Done.", file_changes=[{"path": "a.txt", "change": "modified"}])

    done = await run(url, service, "x", "--workspace", str(work), then=finish)
    said, _, command = done.err.splitlines()[-1].partition("; to take this over: ")
    assert said == f"  {work} itself is unchanged"
    variables = environment(DEPUTIZE_URL=url)
    await asyncio.to_thread(subprocess.run, ["bash", "-c", command], env=variables, check=True, cwd="/")
    assert work.joinpath("a.txt").read_text() == "new\n"


async def test_an_error_is_shown_once_and_many_changes_are_counted(url: str, service: FakeService) -> None:
    changes = [{"path": f"{number}.txt", "change": "created"} for number in range(60)]

    def finish(id: str) -> None:
        said = {"summary": "It ended: the model is away.", "errors": ["the model is away", "another"]}
        service.finish(id, TerminationReason.ERROR, file_changes=changes, **said)

    done = await run(url, service, "x", then=finish)
    assert done.err.count("the model is away") == 0
    assert done.err.count("error: another") == 1
    assert done.err.count("  created ") == 20
    assert f"  and 40 more: deputize show {next(iter(service.runs))}" in done.err


async def test_what_was_not_copied_is_listed_and_counted_beyond_five(url: str, service: FakeService) -> None:
    sentences = [f"{number}.sock is a socket and was not copied" for number in range(7)]

    def finish(id: str) -> None:
        large = {"path": "r.bin", "change": "created", "size": 60_000_000, "inPatch": False}
        files = [large, large | {"path": "0.sock"}]  # a sentence that begins with its path is not about the patch
        service.finish(id, file_changes=files, left_out=["r.bin is not in the patch: it is too large", *sentences])

    done = await run(url, service, "x", then=finish)
    shown = (await deputize("show", next(iter(service.runs)), DEPUTIZE_URL=url)).out.splitlines()
    for prefix, lines in (("  left out: ", done.err.splitlines()), ("left out   ", shown)):
        assert [line for line in lines if line.startswith(prefix)] == [
            *(f"{prefix}{sentence}" for sentence in sentences[:5]),
            f"{prefix}and 2 more",
        ]


async def test_what_the_patch_lacks_is_reported_with_its_size_and_how_to_get_it(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    def finish(id: str) -> None:
        large = {"path": "r.bin", "change": "created", "size": 60_000_000, "inPatch": False}
        service.finish(id, file_changes=[large, {"path": "i.png", "change": "modified", "size": 2100}])

    done = await run(url, service, "x", "--workspace", str(tmp_path), then=finish)
    id = next(iter(service.runs))
    assert "  created r.bin (60 MB, not in the patch)" in done.err.splitlines()
    assert "  modified i.png (2.1 kB)" in done.err.splitlines()
    assert done.err.splitlines()[-1].startswith("  not in the patch: r.bin; to fetch: ")
    assert done.err.splitlines()[-1].endswith(f"pull {id}")


DENIED: dict[str, Any] = {
    "errors": ["the tool x is missing", "$ make: exit code 2", "$ lint: exit code 1", "write a.txt: denied: no"]
}
DENIED |= {"failed_call_count": 3, "recovered_call_count": 1, "denied_call_count": 1}


async def test_a_success_counts_what_was_denied_and_recovered_and_what_did_not_change(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    done = await run(
        url, service, "x", "-w", str(tmp_path), then=lambda id: service.finish(id, summary="Fixed.", **DENIED)
    )
    shown = (await deputize("show", next(iter(service.runs)), DEPUTIZE_URL=url)).out
    ending = "✓ succeeded (completed, 1 call denied, 1 step failed, then recovered, 1 step failed): "
    assert (done.code, done.err.count(ending), shown.count(ending)) == (0, 1, 1)
    errors = [line for line in (done.err + shown).splitlines() if "error" in line or "exit code" in line]
    assert errors == ["  error: the tool x is missing", "error      the tool x is missing"]
    assert "  no files changed" in done.err.splitlines()
    assert "changed    no files changed" in shown.splitlines()


async def test_files_are_not_mentioned_where_there_are_none_or_they_are_not_known(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    done = await run(url, service, "x")
    assert "files changed" not in done.err
    done = await run(
        url, service, "x", "-w", str(tmp_path), then=lambda id: service.finish(id, truncated=True, left_out=["much"])
    )
    assert "files changed" not in done.err


async def test_a_failure_keeps_its_errors(url: str, service: FakeService) -> None:
    done = await run(
        url, service, "x", then=lambda id: service.finish(id, TerminationReason.MAX_TURNS, summary="Half.", **DENIED)
    )
    assert done.err.count("  error: ") == 4
    assert "✗ failed (max_turns, 1 call denied): " in done.err


@pytest.mark.parametrize(("denied", "code"), [(0, 0), (1, 4)])
async def test_denied_calls_fail_the_command_where_that_is_asked_for(
    url: str, service: FakeService, tmp_path: Path, denied: int, code: int
) -> None:
    def finish(id: str) -> None:
        service.finish(id, denied_call_count=denied, failed_call_count=denied)

    assert (await run(url, service, "x", "--fail-on-denied", then=finish)).code == code
    id = next(iter(service.runs))
    assert (await deputize("watch", id, "--fail-on-denied", DEPUTIZE_URL=url)).code == code
    assert (await deputize("watch", id, DEPUTIZE_URL=url)).code == 0
    tmp_path.joinpath("t.txt").write_text("one\n")
    async with started("batch", str(tmp_path / "t.txt"), "--fail-on-denied", DEPUTIZE_URL=url) as command:
        await until(lambda: service.following, 60)
        finish(next(reversed(service.runs)))
        done = await command.done()
    assert (done.code, "1 call denied" in done.out) == (code, bool(denied))


async def test_the_line_of_a_batch_has_time_cost_and_changes(url: str, service: FakeService, tmp_path: Path) -> None:
    tmp_path.joinpath("t.txt").write_text("one\ntwo\n")
    async with started("batch", str(tmp_path / "t.txt"), "-w", str(tmp_path), DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == 2, 60)
        first, second = service.runs
        changes = [{"path": f"{n}.txt", "change": "created", "addedLines": 2} for n in range(2)]
        used = {"execution_time_ms": 2100, "usage": Usage(cost_usd=0.01)}
        service.finish(first, summary="Did one.", file_changes=changes, **used)
        service.finish(second, summary="Did two.", **used)
        done = await command.done()
    assert sorted(done.out.splitlines()) == [
        f"✓ line 1  {first}  succeeded (completed)  2.1 s  $0.0100  2 files changed  Did one.",
        f"✓ line 2  {second}  succeeded (completed)  2.1 s  $0.0100  no files changed  Did two.",
    ]


@pytest.mark.parametrize("name", ["none.yaml", "../none.yaml", "."])
async def test_a_script_that_does_not_exist_is_refused_before_anything_starts(tmp_path: Path, name: str) -> None:
    variables = {"DEPUTIZE_HOME": str(tmp_path / "home"), "DEPUTIZE_MODEL": f"scripted:{name}"}
    where = (tmp_path / name).absolute()
    for command in (("run", "x", "--no-workspace"), ("up",)):
        done = await deputize(*command, cwd=tmp_path, **variables)
        assert (done.code, done.err) == (3, f"deputize: DEPUTIZE_MODEL: there is no script {where}\n")
