"""Runs `deputize` as people do: a process of its own, with nothing of this one's environment that is ours."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.processes.preloaded import COMMAND as PROGRAM
from tests.processes.preloaded import Forked


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str


def environment(**variables: str) -> dict[str, str]:
    ours = ("DEPUTIZE_", "ANTHROPIC_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | variables


class Running:
    """A command under way. What it writes is read all the time, so that it never waits for a reader."""

    def __init__(self, process: Forked, **streams: int) -> None:
        """``streams`` are the ends of pipes by the names ``stdin``, ``out`` and ``err``."""
        self._process = process
        self._streams = streams
        self._whole = asyncio.create_task(self._read())
        self.out = b""
        self.err = b""

    async def _read(self) -> None:
        async def follow(name: str) -> None:
            reader = asyncio.StreamReader()
            ours = os.fdopen(self._streams[name], "rb", 0)
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), ours
            )
            with closing(transport):
                while chunk := await reader.read(4096):
                    setattr(self, name, getattr(self, name) + chunk)

        await asyncio.gather(*(follow(name) for name in self._streams))

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    async def done(self, timeout: float = 100) -> Done:
        async with asyncio.timeout(timeout):
            await self._whole
            code = await self._process.ended()
        return Done(code, self.out.decode(), self.err.decode())

    async def stop(self) -> None:
        self._process.kill()
        await self._process.ended()
        await asyncio.gather(self._whole, return_exceptions=True)


@asynccontextmanager
async def started(
    *arguments: str, stdin: str | int | None = None, cwd: Path | None = None, stderr: int = PIPE, **variables: str
) -> AsyncIterator[Running]:
    """``stdin`` is a text, or a descriptor that stays open."""
    (out, out_end), (err, err_end), (given, given_end) = os.pipe(), os.pipe(), os.pipe()
    os.write(given_end, stdin.encode() if isinstance(stdin, str) else b"")  # less than a pipe holds
    os.close(given_end)
    process = Forked(
        PROGRAM,
        arguments,
        environment(**variables),
        stdin=given if isinstance(stdin, str) else DEVNULL if stdin is None else stdin,
        stdout=out_end,
        stderr=err_end if stderr == PIPE else stderr,
        cwd=cwd,
    )
    for descriptor in (out_end, err_end, given):
        os.close(descriptor)
    running = Running(process, out=out, err=err)
    try:
        yield running
    finally:
        await running.stop()


async def deputize(*arguments: str, stdin: str | None = None, cwd: Path | None = None, **variables: Any) -> Done:
    async with started(*arguments, stdin=stdin, cwd=cwd, **variables) as running:
        return await running.done()
