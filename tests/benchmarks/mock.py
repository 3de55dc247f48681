"""A model mock that costs next to nothing: every answer is bytes made before, found by a scan of the request.

A process of its own: `python -m tests.benchmarks.mock --fd N` serves a listening socket. POST /v1/messages answers as
the conversation's SCRIPT line decides (script.py), GET /stats reports what was seen since the last POST /reset.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
import time
from typing import Any

import uvloop

from tests.benchmarks.script import END, HEAD, Answer, Script, answer

SCRIPT = re.compile(rb"SCRIPT: ([a-z0-9= ]*)")
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
RESULT = b'"tool_result"'


class Stats:
    """What the mock has seen. ``peak`` is how many requests were being answered at the same time."""

    def __init__(self) -> None:
        self.turns = self.now = self.peak = 0
        self.cpu = time.process_time()

    def reset(self) -> None:
        self.turns, self.peak, self.cpu = 0, self.now, time.process_time()

    def begin(self) -> None:
        self.now += 1
        self.peak = max(self.peak, self.now)

    def end(self) -> None:
        self.now -= 1
        self.turns += 1

    def body(self) -> bytes:
        seen = {"turns": self.turns, "peak": self.peak, "cpu_seconds": time.process_time() - self.cpu}
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
            body = self._stats.body()
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            return
        self._busy = True
        self._stats.begin()
        found = SCRIPT.search(request)
        script = Script.read(found[1].strip() if found else b"")
        turn = answer(script, request.count(RESULT))
        if script.delay:
            self._timer = self._loop.call_later(script.delay / 1000, self._say, script, turn)
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
