"""What is reported where this machine's stack is wanted and cannot be had, without one being started."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from deputize.orchestrator.child import ended_because, last_line
from deputize.orchestrator.delegations import open_service
from deputize.orchestrator.home import StackInfo, holder, kept_token, prepare_home, renewed_token, write_info
from deputize.orchestrator.stack import (
    API,
    LONGEST,
    SUPERVISOR,
    WORKER,
    Stage,
    StartMonitor,
    other_settings,
    running,
    setting_digests,
    stack_in_use,
    stage_of,
)
from deputize.shared.errors import Misconfigured, Unavailable
from deputize.shared.settings import Settings
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.serving import served
from tests.processes.redis_server import RedisProcess
from tests.waiting import until, until_sync

HOLDER = """
import fcntl, sys
from deputize.orchestrator.home import sign
lock = open(sys.argv[1], "ab")
fcntl.flock(lock, fcntl.LOCK_EX)
sign(lock.fileno())
print("held", flush=True)
sys.stdin.read()
"""


def settings(home: Path) -> Settings:
    return Settings.load(environ={}, home=home, model="scripted")


def info(url: str, workers: int = 1) -> StackInfo:
    return StackInfo(os.getpid(), url, "", "redis://nowhere", None, workers)


def logged(message: str, logger: str = "deputize.worker") -> str:
    return json.dumps({"at": "now", "level": "error", "logger": logger, "message": message})


def _at(level: str, message: str) -> str:
    return logged(message).replace('"error"', f'"{level}"')


@contextmanager
def held(home: Path) -> Iterator[int]:
    """A process that holds the supervisor's lock and does nothing more."""
    with Popen([sys.executable, "-c", HOLDER, str(home / "supervisor.lock")], stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        process.communicate()


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([], ""),
        (["plain words", ""], "plain words"),
        ([logged("the policy is wrong")], "the policy is wrong"),
        (
            [logged("the policy is wrong"), logged("Future exception was never retrieved", "asyncio")],
            "the policy is wrong",
        ),
        ([logged("Executing took 9 s", "asyncio")], "Executing took 9 s"),
        ([logged("the policy is wrong"), '{"message": 1'], '{"message": 1'),
    ],
)
def test_the_last_message_of_a_log_is_shown(lines: list[str], shown: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("\n".join(lines))
    assert last_line(tmp_path / "a.log") == shown


@pytest.mark.parametrize(
    ("code", "lines", "why"),
    [
        (-9, ["Ready to accept connections"], "by the signal SIGKILL"),
        (-11, [logged("the policy is wrong")], "by the signal SIGSEGV"),
        (1, [logged("the policy is wrong"), _at("info", "Task succeeded in 15 s")], "the policy is wrong"),
        (1, [logged("the policy is wrong"), _at("warning", "slow")], "the policy is wrong"),
        (1, [_at("critical", "no memory"), _at("debug", "slow")], "no memory"),
        (1, [_at("info", "Task succeeded in 15 s")], "Task succeeded in 15 s"),
        (1, ["Fatal error, can't open config file"], "Fatal error, can't open config file"),
        (1, [], "it logged nothing"),
    ],
)
def test_a_program_ended_by_its_signal_or_its_last_error(code: int, lines: list[str], why: str, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(logged("of the process before") + "\n")
    before = log.stat().st_size
    with log.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    assert ended_because(code, log, before) == why


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows which process holds a lock")
async def test_a_start_that_stands_still_is_given_up_and_names_who_holds_the_lock(tmp_path: Path) -> None:
    with held(tmp_path) as pid:
        assert holder(tmp_path) == pid
        with pytest.raises(Unavailable, match=rf"gets no further.* process {pid} holds {tmp_path}/supervisor.lock"):
            async with stack_in_use(settings(tmp_path), wait=0.3):
                pass
    assert holder(tmp_path) is None


@pytest.mark.parametrize("broken", ["supervisor.lock", "users.lock", "stack.json", "logs"])
async def test_a_home_that_cannot_be_used_is_named_with_the_cause(tmp_path: Path, broken: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if broken == "logs":
        (home / broken).touch()
    else:
        (home / broken).mkdir()
    with pytest.raises(Misconfigured, match=rf"{home} cannot be used .*{broken}.*; set DEPUTIZE_HOME"):
        async with stack_in_use(settings(home), wait=5):
            pass


async def test_a_home_below_a_file_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Misconfigured, match="cannot be used"):
        async with stack_in_use(settings(tmp_path / "file" / "home")):
            pass
    with pytest.raises(Misconfigured, match="cannot be used"):
        running(settings(tmp_path / "file" / "home"))


def test_a_home_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    used, named, empty = (tmp_path / name for name in ("used", "named", "empty"))
    for folder in (used, named, empty):
        folder.mkdir(mode=0o755)
    (used / "supervisor.lock").touch()
    (named / "letters").touch()  # a directory with another purpose
    for folder in (used, named, empty):
        prepare_home(folder)
    assert [folder.stat().st_mode & 0o777 for folder in (used, named, empty)] == [0o700, 0o755, 0o700]


def test_the_token_of_a_home_is_kept_and_private(tmp_path: Path) -> None:
    first = kept_token(tmp_path)
    assert (kept_token(tmp_path), (tmp_path / "token").stat().st_mode & 0o777) == (first, 0o600)
    renewed = renewed_token(tmp_path)
    assert renewed != first
    assert (kept_token(tmp_path), (tmp_path / "token").stat().st_mode & 0o777) == (renewed, 0o600)


@pytest.mark.parametrize(
    "broken", ["open to others", "torn", "short", "a link", "a FIFO", "bytes", "empty", "a directory's"]
)
def test_a_token_that_others_may_know_or_that_is_none_is_replaced(tmp_path: Path, broken: str) -> None:
    first, file = kept_token(tmp_path), tmp_path / "token"
    if broken == "open to others":
        file.chmod(0o640)
    elif broken == "torn":
        file.write_text(first[:20])
    elif broken == "short":
        file.write_text("x\n")
    elif broken in ("bytes", "empty"):
        file.write_bytes(b"\xff" * 43 if broken == "bytes" else b"")
    else:
        file.rename(tmp_path / "elsewhere")
        if broken == "a FIFO":
            os.mkfifo(file, 0o600)
        elif broken == "a link":
            file.symlink_to("elsewhere")
    replaced = kept_token(tmp_path)
    assert (len(replaced), replaced != first) == (43, True)
    assert kept_token(tmp_path) == replaced
    assert file.lstat().st_mode & 0o170777 == 0o100600


async def test_what_a_start_waits_for_is_known_from_outside() -> None:
    service = FakeService()
    assert await stage_of(None) == SUPERVISOR
    async with served(service) as url:
        assert await stage_of(info(url)) == WORKER
        assert await stage_of(info(url, workers=0)) is None  # one that is only read needs none
        service.fleet.append(worker_card())
        assert await stage_of(info(url)) is None
    assert await stage_of(info(url)) == API


@pytest.mark.parametrize("workers", [0, 1])
async def test_a_stack_whose_workers_all_drain_is_used_as_it_is(tmp_path: Path, workers: int) -> None:
    service = FakeService()
    service.fleet = [worker_card(draining=True)]
    async with served(service) as url:
        write_info(tmp_path, info(url))
        with held(tmp_path):
            async with stack_in_use(settings(tmp_path), workers=workers, wait=0.3) as found:
                assert found == info(url)


@pytest.mark.parametrize(
    ("refuse", "reason"),
    [
        (("CONFIG", "SET", "min-replicas-to-write", "1"), "takes no writes: too few replicas"),
        (("REPLICAOF", "127.0.0.1", "1"), "takes no writes: it is a read-only replica"),
        (("ACL", "SETUSER", "default", "-zremrangebyscore", "-zrangebyscore", "-zrange"), "refused a command"),
    ],
)
async def test_a_command_fails_at_once_with_the_reason_where_redis_refuses(
    redis_process: RedisProcess, tmp_path: Path, refuse: tuple[str, ...], reason: str
) -> None:
    here = settings(tmp_path)
    async with open_service(here, redis_process.url) as service, served(service) as url:
        write_info(tmp_path, info(url, workers=0))
        redis_process.client.execute_command(*refuse)
        with held(tmp_path), pytest.raises(Unavailable, match=f"^Redis {reason}"):
            async with stack_in_use(here, workers=1, wait=30):  # not to look only: one that has no worker yet
                pass


def test_a_start_gets_on_as_long_as_something_is_logged(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    stage, progress = Stage("starting Redis", "redis.log"), StartMonitor(tmp_path)
    still = until_sync(lambda: progress.stalled_seconds(stage) > 0.05 and progress.stalled_seconds(stage))
    (tmp_path / "logs" / "redis.log").write_text("Loading the data\n")
    assert progress.stalled_seconds(stage) < still
    still = until_sync(lambda: progress.stalled_seconds(stage) > 0.05 and progress.stalled_seconds(stage))
    assert progress.stalled_seconds(API) < still
    assert stage.description(tmp_path) == "starting Redis (redis.log: Loading the data)"


async def test_logs_that_grow_for_ever_are_no_reason_to_wait_for_ever(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    began = time.monotonic()
    with held(tmp_path), (tmp_path / "logs" / "supervisor.log").open("a", buffering=1) as log:
        waiting = asyncio.create_task(_use(settings(tmp_path), [], wait=0.2))

        async def again() -> bool:
            log.write("worker-1 ended; again in 5 s\n")
            return waiting.done()

        await until(again)
        with pytest.raises(Unavailable, match="gets no further"):
            await waiting
    assert time.monotonic() - began > LONGEST * 0.2  # between two looks something was logged, however slow all is


def test_a_stage_names_only_lines_that_a_user_can_act_upon(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/worker-1.log").write_text(logged("commands are measured").replace('"error"', '"info"'))
    assert WORKER.description(tmp_path) == "starting the worker"
    with (tmp_path / "logs/worker-1.log").open("a") as log:
        log.write("\n" + logged("the disk is full").replace('"error"', '"warning"'))
    assert WORKER.description(tmp_path) == "starting the worker (worker-1.log: the disk is full)"


async def test_a_slow_start_reports_its_stage(tmp_path: Path) -> None:
    said: list[str] = []
    write_info(tmp_path, info("http://127.0.0.1:9"))
    with held(tmp_path):
        waiting = asyncio.create_task(_use(settings(tmp_path), said))
        await until(lambda: said)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert said == ["starting the API"]


async def _use(settings: Settings, said: list[str], wait: float = 60) -> None:
    async with stack_in_use(settings, report=said.append, wait=wait):
        pass


def stack_of(settings: Settings, *, stays: bool) -> StackInfo:
    return StackInfo(1, "", "", "", None, 1, stays, setting_digests(settings))


def test_a_stack_has_the_settings_of_the_command_that_started_it(tmp_path: Path) -> None:
    """They travel as variables; what changed on the way would restart the stack with every command."""
    file = tmp_path / "deputize.toml"
    file.write_text(
        'model = "m"\nskills_dir = "skills"\nworkspace_sources = ["."]\npermission_timeout_seconds = 7\n'
        '[caps]\nmax_turns = 7\nmax_cost_usd = 1\n[prices]\nm = {input = 1, output = 5}\n[tools]\nsearch_key = "s"\n'
        '[agents.a]\nlimits = {max_turns = 3}\ntools = ["read_file"]\n[spend]\ndaily_usd = 2\n'
        "[sandbox]\nprocesses = 99\n"
        '[models.house]\nbase_url = "http://h"\nkey = "HOUSE_KEY"\nprice = {input = 1, output = 5}\n'
    )
    variables = {
        "DEPUTIZE_CONFIG": str(file),
        "ANTHROPIC_API_KEY": "k",
        "HOUSE_KEY": "h",
        "DEPUTIZE_HOME": str(tmp_path),
    }
    here = Settings.load(environ=variables)
    passed = Settings.load(environ={**here.child_environment(), **here.endpoint_variables()})
    assert other_settings(here, stack_of(passed, stays=False)) == []


def test_the_settings_in_which_a_stack_differs_are_named_without_their_values(tmp_path: Path) -> None:
    def load(**given: str) -> Settings:
        return Settings.load(environ={"DEPUTIZE_HOME": str(tmp_path), **given})

    plain, capped = load(), load(DEPUTIZE_CAP_MAX_TURNS="7", DEPUTIZE_TOOLS_SEARCH_KEY="one")
    other_key = load(DEPUTIZE_CAP_MAX_TURNS="7", DEPUTIZE_TOOLS_SEARCH_KEY="two")
    assert other_settings(capped, stack_of(plain, stays=True)) == ["caps", "tools"]
    assert other_settings(other_key, stack_of(capped, stays=True)) == ["tools"]
    assert other_settings(plain, stack_of(capped, stays=False)) == ["caps", "tools"]
    assert other_settings(plain, stack_of(capped, stays=True)) == [], "whoever started it may have given more"
    real = load(ANTHROPIC_API_KEY="k", DEPUTIZE_MODEL="m")
    assert other_settings(plain, stack_of(real, stays=False)) == [], "it uses the model of the stack"
    assert other_settings(load(ANTHROPIC_API_KEY="l", DEPUTIZE_MODEL="m"), stack_of(real, stays=False)) == [
        "model_endpoint"
    ]
    table = {"DEPUTIZE_MODELS": '{"house": {"key": "HOUSE_KEY"}}'}
    without = stack_of(load(**table), stays=False)
    assert other_settings(load(**table), without) == []
    assert other_settings(load(**table, HOUSE_KEY="k"), without) == ["model_endpoint"]
