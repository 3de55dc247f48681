"""Running `deputize` as people do: a process of its own, with nothing of this one's environment that is ours."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = str(Path(sys.executable).with_name("deputize"))


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str


def environment(**variables: str) -> dict[str, str]:
    ours = ("DEPUTIZE_", "ANTHROPIC_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | variables


class Running:
    """A command under way. What it says is read all the time, so that it never waits for a reader."""

    def __init__(self, process: Process, stdin: str | None) -> None:
        self._process = process
        self._whole = asyncio.create_task(self._read(stdin))
        self.out = b""
        self.err = b""

    async def _read(self, stdin: str | None) -> None:
        if stdin is not None and self._process.stdin:
            self._process.stdin.write(stdin.encode())
            self._process.stdin.close()

        async def follow(name: str) -> None:
            stream: asyncio.StreamReader | None = getattr(self._process, f"std{name}")
            while stream and (chunk := await stream.read(4096)):
                setattr(self, name, getattr(self, name) + chunk)

        await asyncio.gather(follow("out"), follow("err"))

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    async def done(self, timeout: float = 100) -> Done:
        async with asyncio.timeout(timeout):
            await self._whole
            code = await self._process.wait()
        return Done(code, self.out.decode(), self.err.decode())

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await asyncio.gather(self._whole, return_exceptions=True)


@asynccontextmanager
async def started(
    *arguments: str, stdin: str | None = None, cwd: Path | None = None, stderr: int = PIPE, **variables: str
) -> AsyncIterator[Running]:
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *arguments,
        stdin=DEVNULL if stdin is None else PIPE,
        stdout=PIPE,
        stderr=stderr,
        cwd=cwd,
        env=environment(**variables),
    )
    running = Running(process, stdin)
    try:
        yield running
    finally:
        await running.stop()


async def deputize(*arguments: str, stdin: str | None = None, cwd: Path | None = None, **variables: Any) -> Done:
    async with started(*arguments, stdin=stdin, cwd=cwd, **variables) as running:
        return await running.done()
