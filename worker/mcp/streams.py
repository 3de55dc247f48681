"""The pair of streams that the SDK uses: over the pipes of a server process, or over HTTP.

Nothing here blocks and nothing is a task: bytes come in as the event loop reads them and go out as they are written.
A server's messages are no more trusted than a command's output.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import httpx2
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from ..linux.program import Program
from ..web.dial import GuardedTransport, Network
from ..web.targets import target
from .answers import (
    MAX_MESSAGE,
    TOO_LONG,
    EventLines,
    Lines,
    is_excessive,
    messages_in,
    readable,
    unattributed,
    unreadable,
)
from .config import Server

BURST_BYTES, BYTES_A_SECOND = 10 * 1024 * 1024, 1024 * 1024
BURST_LINES, LINES_A_SECOND = 500, 50
LONGEST_PAUSE = 1.0
MAX_PAUSED = 30.0
"""Seconds of consecutive pauses after which the server is disconnected."""
MAX_WAITING = 500
"""Unread messages; with more, reading from the server is paused."""
MAX_NONSENSE = 100
_PAUSE = 0.1
_AT_ONCE = 50
"""Lines that are parsed per iteration of the event loop."""
_HEARD = ("notifications/progress", "notifications/cancelled")
"""Notifications that are used. The SDK would start a task for each of the others."""
SILENCE = 0.5
"""Seconds after which a message without a line end is read, and one without its end is given up."""
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


class Incoming(ObjectReceiveStream[SessionMessage | Exception]):
    """The server's messages. ``noise`` receives lines that are not messages: many servers print a banner on stdout."""

    def __init__(self, noise: Callable[[bytes], None]) -> None:
        self.over = asyncio.Event()
        """Set when everything has been read and the stream has ended."""
        self.broken: str | None = None
        """The protocol violation that ended it."""
        self.pause: Callable[[float], None] = lambda seconds: None
        self.asked: set[str | int] = set()
        """The ids of the requests that have no answer yet."""
        self._noise = noise
        self._lines = Lines(MAX_MESSAGE)
        self._unread: deque[bytes] = deque()
        self._ready: deque[JSONRPCMessage] = deque()
        self._begun: list[bytes] = []
        """The lines of a message whose end has not come."""
        self._levels = 0
        """How many braces and brackets the last lines have left open, about: those in texts count, too."""
        self._is_stale = False
        """Whether the rest was looked at since the last bytes came."""
        self._news = asyncio.Event()
        self._ended = False
        self._parsed = 0
        self._nonsense = 0
        self._pace = Pace()

    def feed(self, data: bytes) -> None:
        """Adds bytes, in chunks of any size."""
        if self._ended:
            return
        noise: list[bytes] = []
        for line in self._lines.feed(data):
            if self._levels > 0 or b"{" in line or line.lstrip()[:1] == b"[":
                self._unread.append(line)
                self._levels += _opened(line)
            elif len(noise) < _MAX_NOISE:
                noise.append(line[:1000])
        if noise:
            self._noise(b"\n".join([*noise, b""]))
        self._is_stale = False
        self._news.set()
        pause = self._pace.pause(len(data), data.count(b"\n"))
        if self._pace.exhausted:
            self._fail("it sends messages faster than they can be read")
        if len(self._unread) > MAX_WAITING:
            pause = max(pause, _PAUSE)
        if pause:
            self.pause(pause)

    def end(self) -> None:
        """Marks the end of the stream; queued messages are still read."""
        self._ended = True
        self._news.set()

    async def receive(self) -> SessionMessage | Exception:
        while True:
            if self._ready:
                message = self._ready.popleft()
                if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
                    self.asked.discard(message.id)
                return SessionMessage(message)
            if self._unread:
                self._parsed += 1
                if self._parsed % _AT_ONCE == 0:
                    await asyncio.sleep(0)
                self._read(self._unread.popleft())
            elif self._ended and self._is_stale:
                self.over.set()
                raise anyio.EndOfStream
            elif self._ended:
                self._give_up()
            else:
                self._news.clear()
                waits = SILENCE if not self._is_stale and (self._begun or self._lines.rest) else None
                with anyio.move_on_after(waits) as scope:
                    await self._news.wait()
                if scope.cancelled_caught:
                    self._give_up()

    async def aclose(self) -> None:
        self.end()

    def _read(self, line: bytes) -> None:
        """Reads the messages that a line holds or ends."""
        if self._begun:
            self._begun.append(line)
            if sum(map(_opened, self._begun)) > 0 and b'"jsonrpc"' not in line:
                return
            line, self._begun = b"\n".join(self._begun), []
        if is_excessive(line):
            return
        if len(line) > MAX_MESSAGE:
            message = unreadable(line, TOO_LONG)
            if message is None:
                self._fail(TOO_LONG)
            self._take(filter(None, [message]))
            return
        messages, rest = messages_in(line)
        self._begun = [rest] if rest else []
        if not self._take(messages) and not rest:
            self._note_nonsense(line)
        if not (self._begun or self._unread):
            self._levels = 0

    def _take(self, messages: Iterable[JSONRPCMessage]) -> bool:
        """Lets messages be received, but for notifications that are not used. Returns whether there are any."""
        taken = [*messages]
        is_used = [not isinstance(each, JSONRPCNotification) or each.method in _HEARD for each in taken]
        for each, used in zip(taken, is_used, strict=True):
            if isinstance(each, JSONRPCError) and each.id is None and len(self.asked) == 1:
                self._ready.append(each.model_copy(update={"id": next(iter(self.asked))}))
            elif used:
                self._ready.append(each)
        return bool(taken)

    def _give_up(self) -> None:
        """Reads what has no end: all of a message without a line end, or an error in place of one that is cut."""
        self._is_stale = True
        begun, self._begun = b"\n".join(self._begun), []
        messages, rest = messages_in(begun + self._lines.rest)
        if messages and not rest:
            self._lines.drop_rest()
            self._take(messages)
        elif begun:
            self._take(filter(None, [unreadable(begun, "it has no end")]))
            self._note_nonsense(begun)
        self._levels = 0

    def _note_nonsense(self, line: bytes) -> None:
        self._noise(line[:1000] + b"\n")
        if unattributed(line) and len(self.asked) == 1:
            detail = ErrorData(code=PARSE_ERROR, message="its answer cannot be read: it does not name its call")
            self._ready.append(JSONRPCError(jsonrpc="2.0", id=next(iter(self.asked)), error=detail))
        self._nonsense += line.lstrip()[:1] == b"{"
        if self._nonsense > MAX_NONSENSE:
            self._fail("its messages are not valid JSON-RPC")

    def _fail(self, why: str) -> None:
        self.broken = self.broken or why
        self._unread.clear()
        self.end()


def _opened(line: bytes) -> int:
    return line.count(b"{") + line.count(b"[") - line.count(b"}") - line.count(b"]")


class Outgoing(ObjectSendStream[SessionMessage]):
    """The messages to the server."""

    def __init__(self, program: Program, incoming: Incoming) -> None:
        self._program = program
        self._incoming = incoming

    async def send(self, item: SessionMessage) -> None:
        """Sends a message. Raises ``BrokenResourceError`` if the server cannot read it any more."""
        if self._program.ended.done() or self._incoming.broken:
            raise anyio.BrokenResourceError
        if isinstance(item.message, JSONRPCRequest):
            self._incoming.asked.add(item.message.id)
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._program.write(line.encode("utf-8", "replace") + b"\n")

    async def aclose(self) -> None:
        pass


NOT_SENT, BROKEN = -32010, -32011
"""Our own JSON-RPC error codes: the server cannot have received the request, or it may have."""
_CONNECT_SECONDS = 15.0
_LONGEST_SSE = 1024 * 1024 - 1024
"""Bytes of one message over SSE: the SDK ends the connection at an event of 1 MiB."""
_LOOPBACK = re.compile(r"(.+\.)?localhost", re.IGNORECASE)


@asynccontextmanager
async def reached(server: Server, on_error: Callable[[bytes], None], broken: Callable[[], None]) -> AsyncGenerator[Any]:
    """Yields the SDK's streams. ``on_error`` is called with HTTP errors, ``broken`` when the connection is unusable."""
    steady = _Steady(server, on_error, broken if server.type == "sse" else lambda: None)
    headers = {**server.headers, "Accept-Encoding": "identity"}
    # An SSE connection is idle between two calls, as long as the run takes; a call has its own time limit.
    timeout = httpx2.Timeout(_CONNECT_SECONDS, read=None)

    def client(*_: Any, **__: Any) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=steady, headers=headers, timeout=timeout, trust_env=False)

    if server.type == "sse":
        async with sse_client(server.url, httpx_client_factory=client) as streams:
            yield streams
    else:
        async with (
            client() as http,
            streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_MESSAGE) as streams,
        ):
            yield streams


def guarded(url: str, network: Network | None = None) -> GuardedTransport:
    """Returns a transport to the URL's host; private addresses are allowed on its port, loopback only if named.

    Otherwise the owner of the DNS name could reach services that listen on this machine's loopback only.
    """
    where = target(url)
    named = where.address.is_loopback if where.address else _LOOPBACK.fullmatch(where.host) is not None
    return GuardedTransport([where.host_port], loopback=named, network=network)


class _Steady(httpx2.AsyncBaseTransport):
    """Turns a failed HTTP request into a JSON-RPC error response for that request alone."""

    def __init__(self, server: Server, on_error: Callable[[bytes], None], broken: Callable[[], None]) -> None:
        self._guarded = guarded(server.url)
        self._pace = Pace()
        self._on_error = on_error
        self._broken = broken
        self._longest = _LONGEST_SSE if server.type == "sse" else MAX_MESSAGE

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            answer = await self._guarded.handle_async_request(request)
        except httpx2.TransportError as error:
            why = f"{type(error).__name__}: {error}"
            self._on_error(why.encode() + b"\n")
            if request.method != "POST":
                raise
            self._broken()
            unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            return _refusal(503, NOT_SENT if unsent else BROKEN, why)
        kind = answer.headers.get("content-type", "").lower()
        if answer.headers.get("content-encoding", "identity") != "identity":
            await answer.aclose()
            return _refusal(502, BROKEN, "its response is compressed, which was not requested")
        if answer.status_code >= 400:
            status = f"HTTP {answer.status_code} {answer.reason_phrase}".strip()
            self._on_error(status.encode() + b"\n")
            if answer.status_code != 404 and not kind.startswith("application/json"):
                await answer.aclose()
                return _refusal(answer.status_code, BROKEN if answer.is_server_error else INVALID_REQUEST, status)
        streams = kind.startswith("text/event-stream")
        body = cast(httpx2.AsyncByteStream, answer.stream)
        answer.stream = _Paced(body, self._pace, self._longest) if streams else _Bounded(body)
        return answer

    async def aclose(self) -> None:
        await self._guarded.aclose()


class _Paced(httpx2.AsyncByteStream):
    """An event stream with a rate limit, whose messages can be read."""

    def __init__(self, body: httpx2.AsyncByteStream, pace: Pace, longest: int) -> None:
        self._body = body
        self._pace = pace
        self._lines = EventLines(longest)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._body:
            yield self._lines.readable(part)
            if pause := self._pace.pause(len(part), part.count(b"\n")):
                await asyncio.sleep(pause)
            if self._pace.exhausted:
                raise httpx2.ReadError("it sends messages faster than they can be read")

    async def aclose(self) -> None:
        await self._body.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """A body of bounded size that can be read, whose failures are exceptions that the SDK handles."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        whole = bytearray()
        try:
            async for part in self._body:
                whole += part
                if len(whole) > MAX_MESSAGE:
                    raise httpx2.StreamError(f"the response is longer than {MAX_MESSAGE} bytes")
        except httpx2.TransportError as error:
            raise httpx2.StreamError(f"the answer broke off: {error}") from None
        yield readable(bytes(whole)) or b""

    async def aclose(self) -> None:
        await self._body.aclose()


def _refusal(status: int, code: int, message: str) -> httpx2.Response:
    error = {"code": code, "message": message[:500]}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error})
