"""A model mock that costs next to nothing: every answer is bytes made before, found by a scan of the request.

A process of its own: `python -m tests.benchmarks.mock --fd N` serves a listening socket. POST /v1/messages answers as
the conversation's SCRIPT line decides (script.py), GET /stats reports what was seen since the last POST /reset.
POST /limit?rate=4&burst=8&retry=1 puts a token bucket before the answers, which then take 50 to 300 ms. With held=1 it
refuses nothing: each request waits in the endpoint until there is a token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import socket
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import uvloop

from tests.benchmarks.script import END, HEAD, Answer, Script, answer

SCRIPT = re.compile(rb"SCRIPT: ([a-z0-9= ]*)")
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
RESULT = b'"tool_result"'


LIMIT = re.compile(rb"POST /limit\?(\S*)")
DELAYS = 50, 300
"""Milliseconds until the beginning of an answer, of an endpoint with a limit."""
FAILURE = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"
REFUSAL = b'{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed the rate limit."}}'


@dataclass
class Limit:
    """A token bucket, full at first."""

    rate: float
    burst: float
    retry: bool
    """Whether a refusal states in whole seconds when to try again."""
    held: bool = False
    """Whether requests wait for a token instead of being refused."""
    _tokens: float = field(init=False)
    _at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._tokens = self.burst

    def hold(self) -> float:
        """Takes one token. Returns the seconds until there is one."""
        self._refill()
        self._tokens -= 1
        return max(-self._tokens / self.rate, 0)

    def _refill(self) -> None:
        now = time.monotonic()
        self._tokens, self._at = min(self.burst, self._tokens + (now - self._at) * self.rate), now

    def refusal(self) -> bytes | None:
        """Takes one token. Returns the answer where there is none."""
        self._refill()
        if self._tokens >= 1:
            self._tokens -= 1
            return None
        asked = b"retry-after: %d\r\n" % math.ceil((1 - self._tokens) / self.rate) if self.retry else b""
        head = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\n"
        return head + asked + b"content-length: %d\r\n\r\n%b" % (len(REFUSAL), REFUSAL)


class Stats:
    """What the mock has seen. ``peak`` is how many requests were being answered at the same time."""

    def __init__(self) -> None:
        self.turns = self.now = self.peak = self.refused = self.failed = 0
        self.cpu = time.process_time()
        self.first = self.last = 0.0
        self.limit: Limit | None = None

    def reset(self) -> None:
        self.turns, self.peak, self.cpu = 0, self.now, time.process_time()
        self.refused, self.failed, self.first, self.last = 0, 0, 0.0, 0.0

    def refusal(self) -> bytes | None:
        """Returns the answer to a request that the limit refuses."""
        refusal = self.limit.refusal() if self.limit and not self.limit.held else None
        if refusal:
            self.refused += 1
        else:
            self.last = time.monotonic()
            self.first = self.first or self.last
        return refusal

    def begin(self) -> None:
        self.now += 1
        self.peak = max(self.peak, self.now)

    def end(self) -> None:
        self.now -= 1
        self.turns += 1

    def body(self) -> bytes:
        seen = {
            "turns": self.turns,
            "peak": self.peak,
            "cpu_seconds": time.process_time() - self.cpu,
            "refused": self.refused,
            "failed": self.failed,
            "seconds": self.last - self.first,
        }
        return json.dumps(seen).encode()


class Connection(asyncio.Protocol):
    """One connection; a request is whole before it is answered, and the next one comes after the answer."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._loop = asyncio.get_running_loop()
        self._got: list[bytes] = []
        self._size = 0
        self._whole = 0
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
        if self._busy:
            self._stats.end()

    def data_received(self, data: bytes) -> None:
        self._got.append(data)
        self._size += len(data)
        if not self._whole:
            self._got = [b"".join(self._got)]
            end = self._got[0].find(b"\r\n\r\n")
            if end < 0:
                return
            length = LENGTH.search(self._got[0], 0, end)
            self._whole = end + 4 + (int(length[1]) if length else 0)
        if self._size >= self._whole:
            request = b"".join(self._got)
            self._got, self._size, self._whole = [], 0, 0
            self._take(request)

    def _take(self, request: bytes) -> None:
        if not request.startswith(b"POST /v1/messages"):
            if request.startswith(b"POST /reset"):
                self._stats.reset()
            if found := LIMIT.match(request):
                options = dict(parse_qsl(found[1].decode()))
                flags = (options.get(name) == "1" for name in ("retry", "held"))
                self._stats.limit = Limit(float(options["rate"]), float(options["burst"]), *flags)
            body = self._stats.body()
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            return
        found = SCRIPT.search(request)
        script = Script.read(found[1].strip() if found else b"")
        if script.fails:
            self._stats.failed += 1
            self._transport.write(FAILURE)
            return
        if refusal := self._stats.refusal():
            self._transport.write(refusal)
            return
        self._busy = True
        self._stats.begin()
        turn = answer(script, request.count(RESULT))
        limit = self._stats.limit
        delay = random.uniform(*DELAYS) if limit else script.delay
        if limit and limit.held:
            delay += limit.hold() * 1000
        if delay:
            self._timer = self._loop.call_later(delay / 1000, self._say, script, turn)
        else:
            self._say(script, turn)

    def _say(self, script: Script, turn: Answer) -> None:
        if not script.spread:
            self._transport.write(turn.burst)
            self._done()
            return
        self._transport.write(HEAD)
        self._say_piece(turn, 0, self._loop.time(), script.spread / 1000 / len(turn.pieces))

    def _say_piece(self, turn: Answer, index: int, begun: float, step: float) -> None:
        self._transport.write(turn.pieces[index])
        if index + 1 == len(turn.pieces):
            self._transport.write(END)
            self._done()
            return
        at = begun + step * (index + 1)
        self._timer = self._loop.call_at(at, self._say_piece, turn, index + 1, begun, step)

    def _done(self) -> None:
        self._busy, self._timer = False, None
        self._stats.end()


async def serve(listening: socket.socket) -> None:
    stats = Stats()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(stats), sock=listening, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A model mock.")
    parser.add_argument("--fd", type=int, required=True, help="the listening socket")
    uvloop.run(serve(socket.socket(fileno=parser.parse_args().fd)))
