"""The pair of streams that the SDK uses, over the pipes of a server process.

Nothing here blocks and nothing is a task: bytes come in as the event loop reads them and go out as they are written.
A server's messages are no more trusted than a command's output.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCNotification

from .answers import MAX_MESSAGE, TOO_LONG, Messages, Stream, is_excessive, read, unreadable

BURST_BYTES, BYTES_A_SECOND = 10 * 1024 * 1024, 1024 * 1024
BURST_LINES, LINES_A_SECOND = 500, 50
LONGEST_PAUSE = 1.0
MAX_PAUSED = 30.0
"""Seconds of consecutive pauses after which the server is disconnected."""
MAX_WAITING = 500
"""Unread messages; with more, reading from the server is paused."""
MAX_NONSENSE = 100
_PAUSE = 0.1
_AT_ONCE = 200
"""Lines of one chunk that are parsed at once."""
_BATCH = 50
"""Further lines per iteration of the event loop."""
_HEARD = ("notifications/progress", "notifications/cancelled")
"""Notifications that are used. The SDK would start a task for each of the others."""
_MAX_NOISE = 100
"""Lines of one chunk that are not messages but are kept: they may explain a failure."""


class Pace:
    """Rate limiter for the output of one server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen = clock()
        self._bytes = float(BURST_BYTES)
        self._lines = float(BURST_LINES)
        self._paused = 0.0

    def pause(self, size: int, lines: int) -> float:
        """Returns the seconds to pause reading after ``size`` bytes in ``lines`` lines; 0 for none."""
        now = self._clock()
        passed, self._seen = now - self._seen, now
        self._bytes = min(BURST_BYTES, self._bytes + passed * BYTES_A_SECOND)
        self._lines = min(BURST_LINES, self._lines + passed * LINES_A_SECOND)
        if self._bytes == BURST_BYTES and self._lines == BURST_LINES:
            self._paused = 0.0
        self._bytes -= size
        self._lines -= lines
        owed = max(-self._bytes / BYTES_A_SECOND, -self._lines / LINES_A_SECOND, 0.0)
        pause = min(owed, LONGEST_PAUSE)
        self._paused += pause
        return pause

    @property
    def exhausted(self) -> bool:
        """Whether the server has exceeded its rate for too long."""
        return self._paused > MAX_PAUSED


class Program(Protocol):
    """A running server process, inside or outside of the sandbox."""

    ended: asyncio.Future[int]
    reaped: list[str]

    def write(self, data: bytes) -> None: ...
    def close_stdin(self) -> None: ...
    def pause(self, seconds: float) -> None: ...
    def kill(self) -> None: ...
    async def end(self) -> None: ...


class Incoming(Messages):
    """The server's messages. ``noise`` receives lines that are not messages: many servers print a banner on stdout."""

    def __init__(self, noise: Callable[[bytes], None]) -> None:
        self.over = asyncio.Event()
        """Set when everything has been read and the stream has ended."""
        self.broken: str | None = None
        """The protocol violation that ended it."""
        self.pause: Callable[[float], None] = lambda seconds: None
        self._noise = noise
        self._messages: deque[SessionMessage] = deque()
        self._unparsed: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._ended = False
        self._line: list[bytes] = []
        self._size = 0
        self._skips = False
        """Whether the rest of a line that was too long comes."""
        self._nonsense = 0
        self._pace = Pace()

    def feed(self, data: bytes) -> None:
        """Adds bytes, in chunks of any size."""
        if self._ended:
            return
        first, *others = data.split(b"\n")
        self._line.append(first)
        self._size += len(first)
        if others:
            *whole, rest = others
            self._sort([*([] if self._skips else [b"".join(self._line)]), *whole])
            self._line, self._size, self._skips = [rest], len(rest), False
            self._parse(_AT_ONCE)
        if self._size > MAX_MESSAGE:
            self._skips = self._skips or self._is_too_long(b"".join(self._line))
            self._line, self._size = [], 0
        pause = self._pace.pause(len(data), len(others))
        if self._pace.exhausted:
            self._fail("it sends messages faster than they can be read")
        if len(self._messages) + len(self._unparsed) > MAX_WAITING:
            pause = max(pause, _PAUSE)
        if pause:
            self.pause(pause)

    def end(self) -> None:
        """Marks the end of the stream; queued messages are still read."""
        self._ended = True
        self._news.set()

    async def receive(self) -> SessionMessage | Exception:
        while not self._messages:
            if self._unparsed:
                await asyncio.sleep(0)
                self._parse(_BATCH)
                continue
            if self._ended:
                self.over.set()
                raise anyio.EndOfStream
            self._news.clear()
            await self._news.wait()
        return self._messages.popleft()

    async def aclose(self) -> None:
        self.end()

    def _is_too_long(self, line: bytes) -> bool:
        """Ends the call that a line answers if the line is too long, or all calls where it is not known which."""
        if len(line) > MAX_MESSAGE and not self._take(unreadable(line[:1000], TOO_LONG, line[-1000:])):
            self._fail(TOO_LONG)
        return len(line) > MAX_MESSAGE

    def _sort(self, lines: Sequence[bytes]) -> None:
        """Keeps the lines that may be messages and passes the others to ``noise``."""
        found = [line for line in lines if line[:1] == b"{" and not self._is_too_long(line)]
        if len(found) < len(lines):
            noise = (line[:1000] for line in lines if line[:1] != b"{")
            self._noise(b"\n".join([*islice(noise, _MAX_NOISE), b""]))
        self._unparsed.extend(found)
        self._news.set()

    def _parse(self, most: int) -> None:
        """Parses the next lines."""
        noise: list[bytes] = []
        for _ in range(min(most, len(self._unparsed))):
            line = self._unparsed.popleft()
            if not self._understood(line):
                noise.append(line[:1000])
            if self.broken:
                break
        if noise:
            self._noise(b"\n".join([*noise[:_MAX_NOISE], b""]))

    def _understood(self, line: bytes) -> bool:
        if is_excessive(line) or self._take(read(line)):
            return True
        self._nonsense += 1
        if self._nonsense > MAX_NONSENSE:
            self._fail("its messages are not valid JSON-RPC")
        return False

    def _take(self, message: JSONRPCMessage | None) -> bool:
        if message is not None and not (isinstance(message, JSONRPCNotification) and message.method not in _HEARD):
            self._messages.append(SessionMessage(message))
            self._news.set()
        return message is not None

    def _fail(self, why: str) -> None:
        if self.broken is None:
            self.broken = why
        self._line, self._size = [], 0
        self._unparsed.clear()
        self.end()


class Outgoing(Stream):
    """The messages to the server."""

    def __init__(self, program: Program, incoming: Incoming) -> None:
        self._program = program
        self._incoming = incoming

    async def send(self, item: SessionMessage) -> None:
        """Sends a message. Raises ``BrokenResourceError`` if the server cannot read it any more."""
        if self._program.ended.done() or self._incoming.broken:
            raise anyio.BrokenResourceError
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._program.write(line.encode("utf-8", "replace") + b"\n")
