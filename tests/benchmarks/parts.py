"""The real parts a number needs, each a process of its own, gone with the block."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import redis

from deputize.orchestrator.delegations import Delegations, open_service
from deputize.orchestrator.sockets import listen, url_of
from deputize.shared.request import DelegationRequest, DirectoryWorkspace
from deputize.shared.settings import Settings
from tests.benchmarks.script import FILE, Script
from tests.processes.redis_server import RedisProcess
from tests.waiting import until

START_SECONDS = 30.0
STOP_SECONDS = 15.0
TICKS = os.sysconf("SC_CLK_TCK")
FILE_LINES = 200
"""What ``read_file`` reads: 7.8 kB, so that a delegation of ten calls sends about half a megabyte."""


@dataclass
class Worker:
    """One worker process, or that of the API, seen from outside."""

    pid: int

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def megabytes(self) -> float:
        """PSS; or RSS, which is never smaller, where we may not ask: a worker keeps its memory private."""
        try:
            text = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        except PermissionError:
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) * 1024 / 1e6


@dataclass
class Mock:
    """The model mock, and what it has seen since ``reset``."""

    url: str
    http: httpx2.AsyncClient

    async def reset(self) -> None:
        await self.http.post(f"{self.url}/reset")

    async def stats(self) -> dict[str, Any]:
        return (await self.http.get(f"{self.url}/stats")).json()


@dataclass
class Parts:
    """Redis and the mock run; workers and the API are started when they are asked for."""

    folder: Path
    exit: AsyncExitStack
    redis_url: str
    mock: Mock
    settings: Settings
    service: Delegations = field(init=False)
    serving: Worker = field(init=False)
    """The process of the API, once it is started."""

    async def worker(self, concurrency: int = 200, name: str = "1") -> Worker:
        """Starts a worker and returns when it takes work."""
        settings = self.settings.model_copy(update={"concurrency": concurrency})
        process = self.start("deputize.worker", ["--name", name], settings)

        async def here() -> bool:
            assert process.poll() is None, "the worker ended"
            return any(card.pid == process.pid for card in await self.service.workers())

        await until(here, START_SECONDS)
        return Worker(process.pid)

    async def api(self) -> str:
        """Starts the API. Returns its address."""
        with listen("127.0.0.1", 0) as listening:
            fd = listening.fileno()
            self.serving = Worker(self.start("deputize.orchestrator.serve", ["--fd", str(fd)], self.settings, fd).pid)
            url = url_of(listening)

        async def alive() -> bool:
            return (await self.mock.http.get(f"{url}/livez")).is_success

        await until(alive, START_SECONDS)
        return url

    def start(self, module: str, arguments: Sequence[str], settings: Settings, *fds: int) -> subprocess.Popen[bytes]:
        """Starts one of our programs; its log is kept to be shown when it fails."""
        passed = settings.child_environment()
        environment = {name: text for name, text in passed.items() if not _foreign(name)}
        environment |= {name: each.get_secret_value() for name, each in settings.model_endpoint.items()}
        with (self.folder / f"{module}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=fds,
            )
        self.exit.callback(_stop, process)
        return process

    def empty(self) -> None:
        """Forgets all delegations, so that no run pays for the ones before."""
        with redis.Redis.from_url(self.redis_url) as client:
            client.delete(*client.scan_iter("deputize:run*", 10_000), "deputize:nothing")

    def request(self, script: Script) -> DelegationRequest:
        """A delegation for the mock; one that reads a file works on a copy of the folder that holds it."""
        if not script.calls:
            return DelegationRequest(task=script.task())
        source = self.folder / "source"
        return DelegationRequest(task=script.task(), workspace=DirectoryWorkspace(kind="directory", path=str(source)))


@asynccontextmanager
async def open_parts() -> AsyncGenerator[Parts]:
    """Redis on a unix socket, the mock, and a service of this process; what else runs is asked for by the number."""
    async with AsyncExitStack() as exit:
        folder = Path(exit.enter_context(tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True)))
        server = RedisProcess(folder / "redis")
        exit.callback(server.kill)
        write_source(folder / "source")
        http = await exit.enter_async_context(httpx2.AsyncClient(trust_env=False, timeout=120))
        with listen("127.0.0.1", 0) as listening:
            url = url_of(listening)
            settings = settings_for(folder, server.url, url)
            parts = Parts(folder, exit, server.url, Mock(url, http), settings)
            fd = listening.fileno()
            parts.start("tests.benchmarks.mock", ["--fd", str(fd)], settings, fd)
        await parts.mock.reset()
        parts.service = await exit.enter_async_context(open_service(settings, server.url))
        try:
            yield parts
        except Exception as error:
            for log in folder.glob("*.log"):
                error.add_note(f"{log.stem} said: {log.read_text('utf-8', 'replace')[-2000:]}")
            raise


def settings_for(folder: Path, redis_url: str, model_url: str) -> Settings:
    environment = {"ANTHROPIC_BASE_URL": model_url, "ANTHROPIC_API_KEY": "benchmark-key"}
    home = folder / "home"
    return Settings.load(
        environ=environment, redis_url=redis_url, home=home, local=True, log_level="WARNING", no_token=True
    )


def write_source(folder: Path) -> Path:
    """The folder whose copy delegations work in, with the one file they read."""
    folder.mkdir()
    lines = (f"{number:04} the quick brown fox jumps, again" for number in range(FILE_LINES))
    (folder / FILE).write_text("\n".join(lines) + "\n")
    return folder


def _foreign(name: str) -> bool:
    """Variables of the one who measures that would lead our processes elsewhere."""
    return name.startswith("ANTHROPIC_") or name.lower().endswith("_proxy")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
