"""What is wrong around a command ends it with one line and an exit code, never with a traceback."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deputize.orchestrator.cli import cli
from deputize.orchestrator.cli.errors import run_command
from deputize.orchestrator.redis_server import find_program
from deputize.orchestrator.sockets import free_port
from deputize.shared.fleet import own_version
from tests.orchestrator.answering import answering
from tests.orchestrator.command_line import PROGRAM, Done, deputize, environment
from tests.orchestrator.fake_service import FakeService
from tests.sampling import sampled

ID = "dlg_" + "0" * 26


def assert_one_line(done: Done, *codes: int) -> None:
    assert done.code in codes, done.err
    assert "Traceback" not in done.err
    assert "internal error" not in done.err
    assert [line for line in done.err.splitlines() if line.startswith("deputize: ")][1:] == []


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"null", b"3", b'{"items": 3}', b'{"items": [{}]}', b"<html>", b"\xff", b"[" * 100_000]
)
async def test_an_answer_of_another_service_is_one_line(body: bytes, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"task": "x"}')
    commands = [["show", ID], ["run", "x"], ["batch", str(tasks)], ["cancel", ID], ["prune"], ["list"]]
    if body != b"[]":  # an empty list is one
        commands += [["show", ID, "--steps"], ["show", ID, "--events"], ["tools"], ["workers"]]
    async with answering(body) as url:
        for command in commands:
            done = await asyncio.to_thread(invoked, url, *command)
            assert_one_line(done, 3)
            assert "DEPUTIZE_URL" in done.err


async def test_a_service_of_another_version_is_one_line() -> None:
    for version, said in (("99.1", 1), (own_version(), 0)):
        head = f"200 OK\r\nContent-Type: application/json\r\nX-Deputize-Version: {version}".encode()
        async with answering(b"[]", head) as url:
            done = await deputize("tools", DEPUTIZE_URL=url)
        assert done.code == 0
        assert done.err.count(f"this is deputize {own_version()}, the service 99.1; ") == said
        assert len(done.err.splitlines()) == said + 1


def invoked(url: str, *arguments: str) -> Done:
    done = CliRunner(env={"DEPUTIZE_URL": url}).invoke(cli, arguments)
    return Done(done.exit_code, done.stdout, done.stderr)


@pytest.mark.parametrize(
    "head",
    [
        b"301 Moved\r\nLocation: /",
        b"404 Not Found",
        b"200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip",
        b"500 Oh\r\nContent-Type: application/problem+json",
        b"not http",
    ],
)
async def test_an_odd_answer_is_one_line(head: bytes) -> None:
    async with answering(b"{", head) as url:
        assert_one_line(await asyncio.to_thread(invoked, url, "list"), 3)


@pytest.mark.parametrize("command", [["status"], ["version"], ["open"]])
async def test_a_command_that_only_looks_makes_no_home(tmp_path: Path, command: list[str]) -> None:
    done = await deputize(*command, cwd=tmp_path, DEPUTIZE_HOME="rel")
    assert (done.code, [*tmp_path.iterdir()]) == (0 if command == ["version"] else 3, []), done.err


@pytest.mark.parametrize("command", [["stop"], ["up", "--port", "0"]])
async def test_a_home_whose_lock_cannot_be_written_has_a_remedy(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "supervisor.lock").symlink_to(tmp_path / "nowhere" / "lock")
    done = await deputize(*command, DEPUTIZE_HOME=str(tmp_path), DEPUTIZE_MODEL="scripted")
    assert (done.code, done.err.endswith("; set DEPUTIZE_HOME\n")) == (3, True), done.err


async def test_a_home_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    for home in ("/proc/deputize", "/dev/null/x", str(tmp_path / ("x" * 300))):
        done = await deputize("list", DEPUTIZE_HOME=home, DEPUTIZE_MODEL="scripted")
        assert_one_line(done, 3)
        assert "DEPUTIZE_HOME" in done.err


def shell(command: str, url: str, **more: str) -> subprocess.CompletedProcess[str]:
    variables = environment(DEPUTIZE_URL=url, **more)
    return subprocess.run(
        ["bash", "-c", command.replace("deputize", shlex.quote(PROGRAM))],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.costly
@pytest.mark.parametrize("unbuffered", sampled({"buffered": "", "unbuffered": "1"}, 2))
async def test_closed_and_full_outputs_lose_no_result_in_silence(
    url: str, service: FakeService, unbuffered: str
) -> None:
    """What is buffered when a write fails is written again at exit, and a failure there would be exit code 120."""
    shown = {
        "deputize list 2>&-": 0,
        "deputize list <&-": 0,
        "deputize run <&-": 2,
        "deputize batch - <&-": 2,
        "deputize list >&-": 3,
        "deputize list >/dev/full": 3,
        "deputize list | true; exit ${PIPESTATUS[0]}": 141,
        "deputize show @last --json | true; exit ${PIPESTATUS[0]}": 141,
        "deputize doctor | true; exit ${PIPESTATUS[0]}": 141,
        "deputize run x --detach >&- <&-": 3,
        "deputize run x --detach 2>/dev/full": 0,
        "deputize frobnicate 2>/dev/full": 2,
    }
    await asyncio.to_thread(shell, "deputize run seen --detach", url)
    for command, code in shown.items():
        done = await asyncio.to_thread(shell, command, url, PYTHONUNBUFFERED=unbuffered)
        if "| true" not in command or done.returncode:  # the reader may be gone only after all was written
            assert (command, done.returncode) == (command, code)
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
        if code == 3:
            assert "output" in done.stderr
        if code == 141:
            assert done.stderr == ""
    # What could not have reported its result was not started.
    assert sorted(run.request.task for run in service.runs.values()) == ["seen", "x"]


async def test_an_output_that_cannot_encode_a_sign_shows_an_escape(url: str, service: FakeService) -> None:
    done = await deputize("run", "zażółć", "--detach", DEPUTIZE_URL=url)
    done = await deputize("list", DEPUTIZE_URL=url, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.code == 0
    assert "za\\u017c" in done.out


@pytest.mark.parametrize("writable", [True, False])
def test_a_fault_of_our_own_is_one_line_and_a_file_to_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, writable: bool
) -> None:
    home = tmp_path / "home"
    if not writable:
        home.touch()
    monkeypatch.setenv("DEPUTIZE_HOME", str(home))

    monkeypatch.setenv("DEPUTIZE_TOKEN", "token-of-the-operator")

    def command() -> None:
        raise KeyError("it\x1b[31m\nems", "token-of-the-operator")

    assert run_command(command) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "internal error: KeyError: " in said
    assert "please report" in said
    assert "\x1b" not in said
    assert "token-of" not in said
    if not writable:
        assert str(home) not in said
        return
    (report,) = home.joinpath("logs").iterdir()
    assert f"with the file {report}," in said
    assert report.stat().st_mode & 0o777 == 0o600
    assert 'raise KeyError("it' in report.read_text()
    assert "token-of" not in report.read_text()
    assert shlex.join(sys.argv) in report.read_text()


def test_an_error_of_the_file_system_names_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command((tmp_path / "none").read_text) == 3
    assert capsys.readouterr().err == f"deputize: {tmp_path / 'none'}: {os.strerror(2)}\n"


async def test_without_a_model_nothing_is_started(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"task": "x"}')
    for command in (["run", "x"], ["batch", str(tasks)]):
        done = await deputize(*command, DEPUTIZE_HOME=str(tmp_path / "home"))
        assert (done.code, done.out) == (3, "")
        assert "set ANTHROPIC_API_KEY" in done.err
    assert not tmp_path.joinpath("home", "logs").exists()


@pytest.mark.parametrize("command", [["run", "x"], ["list"], ["up"], ["serve", "--port", "0"]], ids=" ".join)
@pytest.mark.parametrize("kind", ["closed", "scheme", "password"])
async def test_a_wrong_redis_is_reported_and_nothing_waits_for_it(
    tmp_path: Path, command: list[str], kind: str
) -> None:
    with password_redis(tmp_path) if kind == "password" else nullcontext(free_port()) as port:
        url = "http://x" if kind == "scheme" else f"redis://127.0.0.1:{port}"
        here: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path / "home"), "DEPUTIZE_MODEL": "scripted"}
        done = await deputize(*command, DEPUTIZE_REDIS_URL=url, **here)
    assert (done.code, done.out) == (3, "")
    assert "DEPUTIZE_REDIS_URL" in done.err
    assert not re.search(r"\.[.;)]", done.err)
    assert kind != "password" or "wants a password" in done.err
    assert not tmp_path.joinpath("home", "logs").exists()


@contextmanager
def password_redis(folder: Path) -> Iterator[int]:
    port = free_port()
    command = [str(find_program()), "--port", str(port), "--bind", "127.0.0.1", "--requirepass", "secret", "--save", ""]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as server:
        try:
            yield port
        finally:
            server.kill()
