"""The network between one process and a server, as a unix socket of its own that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

_CHUNK = 1 << 16


class Link:
    """Passes on what is sent in both directions. While it is cut it loses nothing; a silent one sends it later."""

    def __init__(self, path: Path, to: Path) -> None:
        self.path, self._to = path, to
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    def cut(self, *, silently: bool) -> None:
        """Ends all connections and opens none until ``restore``; silently, connections stay and pass nothing on."""
        self._open.clear()
        if not silently:
            for writer in self._writers:
                writer.close()

    def restore(self) -> None:
        self._open.set()

    @asynccontextmanager
    async def passing(self) -> AsyncGenerator[Link]:
        server = await asyncio.start_unix_server(self._connect, self.path)
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self.path.unlink(missing_ok=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        task, there = asyncio.current_task(), None
        assert task is not None
        self._tasks.add(task)
        try:
            await self._open.wait()
            back, there = await asyncio.open_unix_connection(self._to)
            self._writers.add(there)
            await asyncio.gather(self._pass(reader, there), self._pass(back, writer))
        except (OSError, asyncio.CancelledError):  # nothing awaits this task but the end of the link
            pass
        finally:
            self._tasks.discard(task)
            for each in (writer, there):
                if each:
                    self._writers.discard(each)
                    each.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes on until one side is closed, then closes the other."""
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
