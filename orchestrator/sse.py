"""Server-sent events: frames, keepalive comments, and an end as soon as the client disconnects."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Generator
from contextlib import aclosing, contextmanager
from functools import lru_cache
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..shared.bus import SHARED
from ..shared.errors import Unavailable
from ..shared.events import Envelope
from ..shared.log import log
from ..shared.wording import line_of
from . import problems
from .access_tokens import name_of_caller
from .run_states import state_of

KEEPALIVE_SECONDS = 15.0
KEEPALIVE = b": keepalive\n\n"
T = TypeVar("T")


class StreamSlots:
    """Limits concurrent event streams and long polls, of all callers together and of each."""

    def __init__(self, most: int, per_caller: int | None = None) -> None:
        self._most = most
        self._per_caller = per_caller or most
        self._taken = Counter[str]()

    @contextmanager
    def acquire(self, caller: str = "") -> Generator[None]:
        """Takes a slot for the block. Raises Unavailable if all are taken, or all of a named ``caller``."""
        if self._taken.total() >= self._most:
            raise Unavailable(
                f"{self._most} callers wait for news already; try again in a moment, or set DEPUTIZE_MAX_STREAMS"
            )
        if caller and self._taken[caller] >= self._per_caller:
            raise Unavailable(
                f"this caller waits for news {self._per_caller} times already; close some of its connections, "
                "or set DEPUTIZE_MAX_STREAMS_PER_CALLER"
            )
        self._taken[caller] += 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            self._taken += Counter()  # drops callers that have none


class EventStream(Response):
    """Streams a follower's events. Starlette's own streaming response detects a disconnect only on a write."""

    media_type = "text/event-stream"

    def __init__(
        self,
        follower: AsyncGenerator[Envelope],
        slots: StreamSlots,
        numbered: bool = True,
        lines: bool = False,
        keepalive: float = KEEPALIVE_SECONDS,
    ) -> None:
        # X-Accel-Buffering: a proxy must not buffer events.
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._follower = follower
        self._slots = slots
        self._numbered = numbered
        self._lines = lines
        self._keepalive = keepalive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._slots.acquire(name_of_caller(scope)):
                await self._stream(scope, receive, send)
        except Unavailable as full:
            await problems.response_to(full)(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            if not scope.get("head"):
                await until_disconnect(receive, self._write(send))
        except ClientDisconnect:
            return
        except asyncio.CancelledError:
            pass  # the server shuts down: clients get the end of the stream and reconnect
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._keepalive

        async def write(chunk: bytes) -> None:
            nonlocal due
            due = loop.time() + self._keepalive
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

        async def fill_silences() -> None:
            while True:
                await asyncio.sleep(due - loop.time())
                if loop.time() >= due:
                    await write(KEEPALIVE)

        filling = asyncio.create_task(fill_silences())
        try:
            async with aclosing(self._follower):
                async for envelope in self._follower:
                    await write(_frame(envelope, self._numbered, self._lines))
        except Unavailable as error:
            # The headers are sent, so the error cannot be reported: an early end makes every client resume.
            log.warning("event stream ended early", extra={"cause": str(error)})
        finally:
            filling.cancel()
            await asyncio.wait({filling})


@lru_cache(SHARED)
def _frame(envelope: Envelope, numbered: bool, lines: bool) -> bytes:
    """Returns the frame of an event, made once for all followers of this process."""
    # Transient events have no id, because they cannot be resumed from.
    id = f"id: {envelope.seq}\n" if numbered and envelope.seq is not None else ""
    return f"{id}event: {envelope.event.type}\ndata: {event_json(envelope, lines)}\n\n".encode()


def event_json(envelope: Envelope, lines: bool) -> str:
    """Returns an event, and where ``lines`` are wanted its line for people and what it changes in its delegation."""
    data = envelope.to_json()
    if not lines:
        return data
    line, state = line_of(envelope.event, envelope.at), state_of(envelope)
    further = ({} if line is None else {"line": line}) | ({"state": state} if state else {})
    return f"{data[:-1]},{json.dumps(further)[1:]}" if further else data


async def until_disconnect(receive: Receive, work: Awaitable[T]) -> T:
    """Returns the work's result. If the client disconnects first, cancels the work and raises ClientDisconnect."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
