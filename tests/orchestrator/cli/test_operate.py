"""The commands of an operator: what they show, what they end, and that none of them starts a service."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deputize.orchestrator.cli import cli
from deputize.orchestrator.cli.operate import MOST_BYTES, AddedLines
from deputize.orchestrator.home import SUPERVISOR_LOCK, StackInfo, open_private, prepare_home, write_info
from deputize.shared.fleet import own_version
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.losses import StoreLoss
from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.waiting import until

LINE = {"at": "2026-11-26T12:00:00+00:00", "level": "warning", "logger": "deputize", "message": "slow", "cause": "disk"}


def invoke(*arguments: str, **variables: str) -> Result:
    return CliRunner(env=variables).invoke(cli, arguments)


@contextmanager
def stack_of_a_command(home: Path, url: str = "http://127.0.0.1:1") -> Iterator[None]:
    """A stack that lives as long as the command that uses it, as far as its home shows it."""
    prepare_home(home)
    with open_private(home / SUPERVISOR_LOCK, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_info(home, StackInfo(os.getpid(), url, "", "redis://x", None, 1))
        yield


@pytest.mark.parametrize("command", ["status", "open", "drain x"])
def test_where_no_service_runs_none_is_started(command: str, tmp_path: Path) -> None:
    done = invoke(*command.split(), DEPUTIZE_HOME=str(tmp_path))
    assert done.exit_code == 3
    assert "no service runs on this machine" in done.stderr
    assert [path for path in tmp_path.iterdir() if path.suffix == ".json"] == []


def test_stopping_what_does_not_run_is_no_mistake(tmp_path: Path) -> None:
    done = invoke("stop", DEPUTIZE_HOME=str(tmp_path))
    assert (done.exit_code, done.stderr) == (0, "no service runs on this machine\n")


def test_what_belongs_to_another_command_is_not_stopped_and_not_opened(tmp_path: Path) -> None:
    with stack_of_a_command(tmp_path):
        stopped, opened = (invoke(each, DEPUTIZE_HOME=str(tmp_path)) for each in ("stop", "open"))
    assert (stopped.exit_code, "ends with it" in stopped.stderr) == (2, True)
    assert (opened.exit_code, "no service runs that stays" in opened.stderr) == (3, True)


def test_the_end_of_a_stack_that_no_command_uses_any_more_is_waited_for(tmp_path: Path) -> None:
    with ExitStack() as used:
        used.enter_context(stack_of_a_command(tmp_path))
        ends = Timer(0.2, used.close)
        ends.start()
        done = invoke("stop", DEPUTIZE_HOME=str(tmp_path))
        ends.join()
    assert (done.exit_code, done.stderr) == (0, "no service runs on this machine\n")


@pytest.mark.parametrize("command", ["stop", "logs"])
def test_what_runs_elsewhere_is_stopped_and_logs_there(command: str, tmp_path: Path) -> None:
    done = invoke(command, DEPUTIZE_HOME=str(tmp_path), DEPUTIZE_URL="http://127.0.0.1:1")
    assert (done.exit_code, "where it runs" in done.stderr) == (2, True)


async def test_status_counts_what_waits_and_runs(url: str, service: FakeService, tmp_path: Path) -> None:
    service.fleet = [worker_card(running=2), worker_card(name="worker@two", version="0.0.1", draining=True)]
    ids = [(await service.create(DelegationRequest(task=f"task {number}"))).delegation.id for number in range(3)]
    service.begin(ids[0])
    done = await deputize("status", DEPUTIZE_URL=url)
    assert done.code == 0
    assert done.out.splitlines() == [
        f"service      {url}, deputize {own_version()}",
        "state        ✓ ready",
        "workers      2, 2 of 400 places taken, 1 draining",
        "delegations  2 queued, 1 running, 0 waiting",
        "note         workers of other versions: 0.0.1",
    ]
    shown = json.loads((await deputize("status", "--json", DEPUTIZE_URL=url)).out)
    assert (shown["problem"], shown["delegations"]) == (None, {"queued": 2, "running": 1, "waiting": 0})
    service.runs[ids[1]] = service.runs[ids[1]].model_copy(update={"paused": True})
    shown = (await deputize("status", DEPUTIZE_URL=url)).out
    assert "\ndelegations  1 queued, 1 running, 0 waiting, 1 paused\n" in shown


@pytest.mark.long
async def test_status_states_what_failovers_have_lost(url: str, service: FakeService) -> None:
    at = datetime(2026, 11, 29, 3, 14, 15, tzinfo=UTC)
    service.lost = [StoreLoss(at=at, writes=12, doubted=3, delegations=1), *[StoreLoss(writes=1)] * 5]
    lines = (await deputize("status", DEPUTIZE_URL=url)).out.splitlines()
    assert [line for line in lines if line.startswith("lost")] == [
        "lost         2026-11-29 03:14:15Z: 12 writes of Redis, 3 runs in doubt, 1 accepted delegation lost",
        *["lost         at some time: 1 write of Redis, 0 runs in doubt"] * 2,
    ]
    shown = json.loads((await deputize("status", "--json", DEPUTIZE_URL=url)).out)["losses"]
    assert (len(shown), shown[0]["doubted"]) == (6, 3)


async def test_status_reports_why_work_would_only_wait(url: str, service: FakeService) -> None:
    service.fleet = [worker_card(draining=True)]
    done = await deputize("status", DEPUTIZE_URL=url)
    assert (done.code, "✗ every worker is draining" in done.out) == (3, True), done
    done = await deputize("status", DEPUTIZE_URL="http://127.0.0.1:1")
    assert (done.code, "✗ no service answers" in done.out, "Traceback" in done.err) == (3, True, False), done


async def test_version_names_those_of_the_service_and_its_workers(url: str, service: FakeService) -> None:
    service.fleet = [worker_card(version="0.0.1")]
    done = await deputize("version", DEPUTIZE_URL=url)
    assert done.out.splitlines() == [
        f"deputize {own_version()}",
        f"service at {url}: {own_version()}",
        "worker@one: 0.0.1",
    ]


async def test_a_worker_is_drained_by_the_beginning_of_its_name(url: str, service: FakeService) -> None:
    service.fleet = [worker_card(name=f"worker-{number}@host", running=number) for number in (0, 1)]
    for name, said in (("worker", "for 2 workers; there are worker-0@host"), ("x", "no worker is named 'x'; ")):
        done = await deputize("drain", name, DEPUTIZE_URL=url)
        assert (done.code, said in done.err) == (2, True), done.err
    done = await deputize("drain", "worker-0", DEPUTIZE_URL=url)
    assert (done.code, done.out) == (0, "worker-0@host  drained\n")
    assert [card.draining for card in service.fleet] == [True, False]
    assert "0/200 draining" in (await deputize("workers", DEPUTIZE_URL=url)).out


async def test_draining_is_waited_for(url: str, service: FakeService) -> None:
    service.fleet = [worker_card(running=1)]
    async with started("drain", "worker@one", DEPUTIZE_URL=url) as command:
        await until(lambda: service.fleet[0].draining)
        assert command.out == b""
        service.fleet = [service.fleet[0].model_copy(update={"running": 0})]
        assert (await command.done()).out == "worker@one  drained\n"


@pytest.mark.parametrize("token", ["", "secret+/="], ids=["open", "token"])
async def test_the_page_is_opened_by_a_file_that_only_its_user_can_read(token: str, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nsleep 0; printf %s "$1" > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/opened\n')
    browser.chmod(0o755)
    here: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path / "home"), "DEPUTIZE_URL": "http://127.0.0.1:1/"}
    here |= {"DEPUTIZE_TOKEN": token} if token else {}
    link = "http://127.0.0.1:1/" + ("#token=secret%2B/%3D" if token else "")
    only = await deputize("open", "--print", BROWSER=str(browser), **here)
    assert (only.out, (tmp_path / "opened").exists()) == (f"{link}\n", False)
    done = await deputize("open", BROWSER=str(browser), **here)
    assert (done.code, done.out) == (0, f"{link}\n")
    await until((tmp_path / "opened").exists)
    page = Path((tmp_path / "opened").read_text().removeprefix("file://"))
    assert (page.stat().st_mode & 0o077, f'url={link}"' in page.read_text()) == (0, True)


async def test_without_a_desktop_the_link_is_only_printed(tmp_path: Path) -> None:
    here: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path), "DEPUTIZE_URL": "http://127.0.0.1:1"}
    done = await deputize("open", BROWSER="", DISPLAY="", WAYLAND_DISPLAY="", **here)
    assert (done.code, done.out, done.err) == (0, "http://127.0.0.1:1/\n", "")
    assert not (tmp_path / "open.html").exists()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "api.log").write_text(
        json.dumps(LINE | {"level": "info"}) + "\n" + json.dumps(LINE) + "\nplain \x1b[2J\n"
    )
    (folder / "redis.log").write_text("ready\n")
    (folder / "redis.log.1").write_text("of an earlier start\n")
    return folder


def test_logs_are_shown_for_people_by_program(logs: Path) -> None:
    home = {"DEPUTIZE_HOME": str(logs.parent), "TZ": "UTC"}
    lines = invoke("logs", **home).stdout.splitlines()
    assert [line.partition(" | ")[0].strip() for line in lines] == ["api", "api", "api", "redis"]
    assert lines[1].endswith(":00:00 warning slow cause=disk")
    assert lines[2:] == ["api        | plain \\x1b[2J", "redis      | ready"]
    assert invoke("logs", "redis", "-n", "0", **home).stdout == ""
    assert invoke("logs", "api", "-n", "1", **home).stdout == "api        | plain \\x1b[2J\n"
    done = invoke("logs", "worker-9", **home)
    assert (done.exit_code, "there is no log of 'worker-9'; there are api, redis" in done.stderr) == (2, True)


def test_of_a_delegation_the_lines_about_it_are_shown_however_long_the_log_is(logs: Path) -> None:
    home, id = {"DEPUTIZE_HOME": str(logs.parent), "TZ": "UTC"}, new_id()
    about = [json.dumps(LINE | {"message": message, "delegation": id}) for message in ("first", "last")]
    with (logs / "worker-1.log").open("w") as log:
        log.write(f"{about[0]}\n{'x' * MOST_BYTES}\n{about[1]}\n{about[1]}")  # the last line is not complete
    (logs / "worker-1.log.1").write_text(about[0].replace("first", "before") + "\n")
    lines = invoke("logs", id, **home).stdout.splitlines()
    assert [line.partition(" | ")[0].strip() for line in lines] == ["worker-1"] * 3
    assert ("before" in lines[0], "first" in lines[1], "last" in lines[2]) == (True, True, True)
    assert invoke("logs", "-n", "1", "worker-1", id, **home).stdout.splitlines() == lines[2:]
    none = invoke("logs", "api", id, **home)
    assert (none.stdout, f"is about {id}" in none.stderr) == ("", True)
    (logs / "worker-2.log.1").write_text(about[0] + "\n")  # the stack that runs has fewer workers
    lines = invoke("logs", id, **home).stdout.splitlines()
    assert [line.partition(" | ")[0].strip() for line in lines] == ["worker-1"] * 3 + ["worker-2"]


@pytest.mark.parametrize("part", ["abcdef", "q", "4f", "worker1"])
async def test_any_part_of_an_id_is_looked_for_and_where_none_fits_the_programs_are_named(
    part: str, logs: Path, url: str
) -> None:
    home = {"DEPUTIZE_HOME": str(logs.parent)}
    done = await asyncio.to_thread(invoke, "logs", part, **home)
    assert (done.exit_code, "no service runs on this machine" in done.stderr) == (3, True)
    assert "There are logs of api, redis" in " ".join(done.stderr.split())
    with stack_of_a_command(logs.parent, url):
        done = await asyncio.to_thread(invoke, "logs", part, **home)
    assert (done.exit_code, f"begins or ends with {part}" in done.stderr) == (2, True)
    assert "There are logs of api, redis" in " ".join(done.stderr.split())


def test_where_no_service_ever_ran_the_logs_say_what_to_do(tmp_path: Path) -> None:
    done = invoke("logs", DEPUTIZE_HOME=str(tmp_path))
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"there are no logs in {tmp_path}/logs yet; `deputize up --detach` starts a service\n"


async def test_logs_are_followed_through_a_restart(logs: Path) -> None:
    async with started("logs", "-f", "-n", "1", DEPUTIZE_HOME=str(logs.parent)) as command:
        await until(lambda: b"redis      | ready\n" in command.out)
        (logs / "worker-1.log").write_text("begins\n")  # a program that is started later
        await until(lambda: b"worker-1   | begins\n" in command.out)
        with (logs / "api.log").open("a") as log:
            log.write("one\n")
        await until(lambda: b"api        | one\n" in command.out)
        (logs / "api.log").rename(logs / "api.log.1")
        (logs / "api.log").write_text("anew\n")
        await until(lambda: b"api        | anew\n" in command.out)
        assert command.out.count(b"ready") == 1
        command.interrupt()
        assert (await command.done()).code == 130


def test_of_a_log_complete_lines_are_read_and_of_a_long_one_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    added = AddedLines(path)
    assert added.read() == []
    path.write_bytes(b"one\ntw")
    assert added.read() == ["one"]
    with path.open("ab") as log:
        log.write(b"o\n")
    assert (added.read(), added.read()) == (["two"], [])
    with path.open("ab") as log:
        log.write(b"x" * MOST_BYTES + b"\nlast\n")
    assert added.read() == ["last"]


async def _logged(id: str, here: dict[str, Any]) -> bool:
    return id in (await deputize("logs", id, **here)).out


@pytest.mark.costly
@pytest.mark.system
async def test_a_detached_stack_stays_until_it_is_stopped(tmp_path: Path) -> None:
    here: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path), "DEPUTIZE_MODEL": "scripted", "DEPUTIZE_PORT": "0"}
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/worker-2.log").write_text("of an earlier stack\n")
    done = await deputize("up", "--detach", **here)
    assert done.code == 0, done.err
    try:
        said = dict(line.split(maxsplit=1) for line in done.out.splitlines())
        assert said["Stop"].startswith("`deputize stop`")
        info = json.loads((tmp_path / "stack.json").read_text())
        assert (info["stays"], info["url"]) == (True, said["API"])
        assert (await deputize("status", **here)).out.splitlines()[1] == "state        ✓ ready"
        assert (await deputize("open", "--print", **here)).out == f"{info['url']}/#token={info['token']}\n"
        logged = (await deputize("logs", **here)).out
        assert ("worker-1 " in logged, "worker-2 " in logged) == (True, False)
        again = await deputize("up", "--detach", **here)
        assert (again.code, f"already at {info['url']}" in again.err) == (3, True)
        id = (await deputize("run", "x", "--detach", **here)).out.strip()
        assert id.startswith("dlg_")
        await until(lambda: _logged(id, here))
        replaced = await deputize("up", "--detach", "--replace", **here)
        assert (replaced.code, "API" in replaced.out) == (0, True), replaced.err
        assert json.loads((tmp_path / "stack.json").read_text())["token"] == info["token"]
        assert (await deputize("show", id[-6:], "--json", **here)).code == 0
        assert id in (await deputize("logs", id[-6:], **here)).out
    finally:
        done = await deputize("stop", **here)
    assert (done.code, done.out) == (0, "stopped; unfinished delegations go on with the next `deputize up`\n")
    assert not (tmp_path / "stack.json").exists()


@pytest.mark.costly
@pytest.mark.system
async def test_a_detached_start_that_fails_reports_the_reason_and_leaves_nothing(tmp_path: Path) -> None:
    here: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path), "DEPUTIZE_SANDBOX": "required", "PATH": "/nonexistent"}
    done = await deputize("up", "--detach", "--port", "0", DEPUTIZE_POLICY=str(tmp_path / "none.toml"), **here)
    assert done.code == 3
    assert "none.toml" in done.err
    assert (await deputize("stop", **here)).err.endswith("no service runs on this machine\n")
