"""Services that run beside commands: who reaches them, and what is left of those that do not want to end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import EnvironmentFailed
from deputize.shared.settings import SandboxSettings
from deputize.shared.settings.services import ServiceSettings
from deputize.worker.environments.run_services import services_beside
from deputize.worker.linux.tree import command_line
from deputize.worker.sandbox.bounds import WorkerBounds
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.environment import owner, program_mounts
from deputize.worker.sandbox.project_tools import ProjectTools
from deputize.worker.sandbox.services import Service
from tests.processes.ordinary_user import home_of_an_ordinary_user, need_ordinary_user
from tests.waiting import until, until_sync
from tests.worker.forked import in_child
from tests.worker.sandbox.sandboxes import processes_named, said

PORT = 7777
SERVER = f"""
import socketserver, sys
class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(sys.argv[1].encode())
socketserver.TCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("127.0.0.1", {PORT}), Answer).serve_forever()
"""
GET = f"(exec 2>/dev/null; cat </dev/tcp/127.0.0.1/{PORT}) || echo nothing"
CONNECTS = f": </dev/tcp/127.0.0.1/{PORT}"
UNENDING = "trap '' TERM INT HUP; (setsid sh -c 'sleep {0} & sleep {0}' &); sleep {0}"


@pytest.fixture
def word(request: pytest.FixtureRequest) -> str:
    """A number of seconds that only processes of this test have among their arguments."""
    return f"9{os.getpid()}{zlib.crc32(request.node.name.encode()) % 1000:03}"


def processes_of(program: str, word: str) -> list[int]:
    """The processes of a program that have the word among their arguments, and no script of a shell."""
    return [
        pid for pid in processes_named(word) if re.match(rf"{program} (server.py )?{word}", command_line(pid) or "")
    ]


def serving(answer: str, before: str = "") -> dict[str, Any]:
    command = f"cat >server.py <<'END'\n{SERVER}\nEND\n{before}\nexec python3 server.py {answer}"
    return {"command": command, "health": f'test -n "$(cat </dev/tcp/127.0.0.1/{PORT})"', "port": PORT}


@asynccontextmanager
async def beside(folder: Path) -> AsyncGenerator[Any]:
    """Yields what opens the sandbox of a run beside a service."""
    folder.mkdir()
    files = folder / "files"
    files.mkdir()
    if ids := owner():
        os.chown(files, *ids)
    with WorkerBounds(SandboxSettings()).run(files, further=[folder / "services"]) as bounds:

        @asynccontextmanager
        async def opened(template: Path | None = None, **settings: Any) -> AsyncGenerator[Bubblewrap]:
            service = Service("it", ServiceSettings(**settings), template, program_mounts(), ())
            async with services_beside([service], folder / "services", bounds) as services:
                if why := await services.start():
                    raise EnvironmentFailed(why)
                with Bubblewrap(files, tools=services.shown(ProjectTools()), bounds=bounds, beside=services) as sandbox:
                    yield sandbox

        yield opened


async def test_each_run_reaches_its_own_service_and_nothing_else_reaches_it(tmp_path: Path) -> None:
    async with (
        beside(tmp_path / "one") as one,
        beside(tmp_path / "two") as two,
        one(**serving("one")) as first,
        two(**serving("two")) as second,
    ):
        assert [await said(each, GET) for each in (first, second)] == ["one", "two"]
        with Bubblewrap(tmp_path / "one/files") as without:
            assert await said(without, GET) == "nothing"
        with socket.socket() as machine:
            assert machine.connect_ex(("127.0.0.1", PORT)) != 0


def test_a_worker_that_is_an_ordinary_user_runs_services_as_root_does() -> None:
    need_ordinary_user()

    async def answered(home: Path) -> str:
        await Bubblewrap.selftest(home)
        async with beside(home / "run") as run, run(**serving("one")) as sandbox:
            return await said(sandbox, GET)

    with home_of_an_ordinary_user() as home:
        assert in_child(lambda: asyncio.run(answered(home)), ordinary=True) == "one"


async def test_a_service_and_a_command_exchange_more_than_buffers_hold(
    tmp_path: Path,
) -> None:
    echo = serving("one")
    echo["command"] = echo["command"].replace("sys.argv[1].encode()", "self.rfile.read()")
    echo["health"] = CONNECTS
    ask = (
        f"import socket; it = socket.create_connection(('127.0.0.1', {PORT})); it.sendall(b'x' * 9_000_000); "
        "it.shutdown(socket.SHUT_WR); print(len(it.makefile('rb').read()))"
    )
    async with beside(tmp_path / "run") as run, run(**echo) as sandbox:
        assert await said(sandbox, f'python3 -c "{ask}"', timeout=60) == "9000000"


@pytest.mark.parametrize("health", [CONNECTS, "true"])
async def test_no_command_runs_before_a_late_service_listens_whatever_its_health_asks(
    tmp_path: Path, word: str, health: str
) -> None:
    late = serving(word, "sleep 0.4") | {"health": health}
    async with beside(tmp_path / "run") as run, run(**late) as sandbox:
        assert await said(sandbox, GET) == word
        waiting = asyncio.create_task(
            said(sandbox, f"touch begun; while ({CONNECTS}) 2>/dev/null; do :; done; echo refused")
        )
        await until((tmp_path / "run/files/begun").exists)
        for pid in processes_of("python3", word):
            os.kill(pid, signal.SIGKILL)
        assert await waiting == "refused"

        async def restarted() -> bool:  # the end of the one before may not be known to the next command
            return (await said(sandbox, GET)).startswith(word)

        await until(restarted)


async def test_a_command_waits_for_the_end_of_a_service_that_is_just_ending(tmp_path: Path, word: str) -> None:
    async with beside(tmp_path / "run") as run, run(**serving(word)) as sandbox:
        (server,) = processes_of("python3", word)
        guard = parent(parent(server))
        os.kill(init := parent(guard), signal.SIGSTOP)
        os.kill(server, signal.SIGKILL)
        await until(lambda: not command_line(guard))
        answer = asyncio.create_task(said(sandbox, GET))
        await asyncio.wait([answer], timeout=0.5)
        os.kill(init, signal.SIGCONT)
        assert (await answer).startswith(f"{word}[the service it ended with exit code 137, and was started again")


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_commands_neither_see_nor_kill_a_service(tmp_path: Path) -> None:
    async with beside(tmp_path / "run") as run, run(**serving("one")) as sandbox:
        assert await said(sandbox, "kill -9 -1; echo done", timeout=20) != "one"
        seen = await said(sandbox, f"cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls -A /opt/services/it; {GET}")
        assert "server.py" not in seen.replace(GET, "")
        assert seen.endswith("one")
        assert "it" not in await said(sandbox, "touch /opt/services/it/x 2>/dev/null && ls /opt/services; exit 0")


async def test_a_service_that_forks_daemons_and_ignores_signals_leaves_no_process(tmp_path: Path, word: str) -> None:
    async with beside(tmp_path / "run") as run:
        async with run(**serving("one", f"({UNENDING.format(word)}) &")) as sandbox:
            await until(lambda: len(processes_of("sleep", word)) >= 3)
            assert await said(sandbox, GET) == "one"
        assert processes_of("sleep", word) == []
        assert not (tmp_path / "run/services").exists()


async def test_a_service_whose_program_ends_leaves_no_daemon_beside_its_successor(tmp_path: Path, word: str) -> None:
    fragile = serving(word, f"(setsid sleep {word} &)")
    fragile["command"] = fragile["command"].replace("exec python3", "timeout 86400 python3")
    async with beside(tmp_path / "run") as run, run(**fragile) as sandbox:
        (program,) = processes_of("python3", word)
        os.kill(program, 9)
        await until(lambda: not processes_of("python3", word))
        answer = await until(lambda: _again(sandbox))
        assert "the service it ended with exit code 137, and was started again with the data" in answer
        assert answer.startswith(word)
        assert len(processes_of("sleep", word)) == 1


async def test_what_cannot_be_copied_or_started_is_named(tmp_path: Path) -> None:
    async with beside(tmp_path / "run") as run:
        for more, why in (
            ({"template": tmp_path / "missing"}, "the data of the service it could not be copied: "),
            ({"command": "a\0b"}, "the service it could not be started: the command cannot be started: "),
        ):
            with pytest.raises(EnvironmentFailed, match=why):
                async with run(**{**serving("one"), **more}):
                    pass


async def _again(sandbox: Bubblewrap) -> str:
    """What a command prints before which the service was started again; "" where it was not seen to have ended."""
    answer = await said(sandbox, GET)
    return answer if "started again" in answer else ""


def test_a_worker_that_is_killed_leaves_no_service(tmp_path: Path, word: str) -> None:
    async def start_and_die() -> None:
        await Bubblewrap.selftest()
        async with beside(tmp_path / "run") as run, run(**serving("one", f"({UNENDING.format(word)}) &")):
            await until(lambda: processes_of("sleep", word))
            os.kill(os.getpid(), 9)

    assert in_child(lambda: asyncio.run(start_and_die())) == "SIGKILL"
    until_sync(lambda: not processes_of("sleep", word))
