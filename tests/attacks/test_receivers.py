"""Receivers of webhooks that one caller names, and that do what they can: the others' notifications arrive."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from deputize.shared.connection import Pipe, connect
from deputize.shared.runs.store import WRITING, RunStore
from deputize.worker.fleet.webhook_sender import AT_ONCE, OF_HOST
from tests.runs.hooks import Hooks
from tests.runs.receiving import OK, receiving
from tests.waiting import until

MOST_MEMORY = 64 << 10
"""Kilobytes by which the sender may grow, together with the receivers here."""


@dataclass(frozen=True)
class Answer:
    """What a receiver writes at first, and then for as long as anything reads."""

    first: bytes = b""
    more: bytes = b""
    is_silent: bool = False


HEAD = b"HTTP/1.1 200 OK\r\n"
ANSWERS = {
    "nothing": Answer(is_silent=True),
    "a header without end": Answer(HEAD + b"x-long: ", b"x" * 65536),
    "headers without end": Answer(HEAD, b"x-more: y\r\n" * 5000),
    "a status without end": Answer(b"HTTP/1.1 200 ", b"O" * 65536),
    "a body without end": Answer(HEAD + b"\r\n", b"x" * 65536),
    "chunks without end": Answer(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 5000),
    "informal answers without end": Answer(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 500),
    "one byte after the other": Answer(b"H", b"T"),
    "a body that is packed": Answer(
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 9999999999\r\n\r\n", b"\0" * 65536
    ),
    "what is no HTTP": Answer(b"\0\xff" * 65536, b"\0" * 65536),
    "never again": Answer(b"HTTP/1.1 429 No\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n"),
    "elsewhere": Answer(b"HTTP/1.1 307 No\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
}


@pytest.fixture
async def hooks(redis_url: str) -> AsyncIterator[Hooks]:
    async with connect(redis_url) as redis, connect(redis_url) as writing, Pipe(writing, WRITING) as pipe:
        yield Hooks(RunStore(redis, 3600), pipe)


@pytest.mark.parametrize("kind", ANSWERS)
async def test_whatever_a_receiver_answers_others_are_notified_and_the_worker_does_not_grow(
    hooks: Hooks, kind: str
) -> None:
    answer = ANSWERS[kind]
    async with receiving(answer.first or OK) as hostile, receiving() as honest:
        hostile.more, hostile.hold = answer.more, asyncio.Event() if answer.is_silent else None
        for _ in range(OF_HOST + 5):
            await hooks.ended(hostile.url, caller="greedy")
        sender = hooks.sender([hostile.host, honest.host], try_seconds=2)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert await sender.start_due() == OF_HOST
        await until(lambda: len(hostile.received) == OF_HOST)
        id = await hooks.ended(honest.url, caller="honest")
        await until(sender.start_due)
        await until(lambda: len(honest.received) == 1)
        await asyncio.wait_for(asyncio.gather(*sender.sending), 30)
        assert (await hooks.one(id)).state == "delivered"
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY


@pytest.mark.costly
@pytest.mark.parametrize("rest", [0, 1200])
async def test_many_silent_hosts_of_one_caller_take_no_place_of_the_others(hooks: Hooks, rest: int) -> None:
    """More of them than a worker notifies at once, also more than are looked at."""
    async with receiving(address="0.0.0.0") as silent, receiving() as honest:
        silent.hold = asyncio.Event()
        port = silent.host.partition(":")[2]
        named = [f"127.0.{number // 200}.{number % 200 + 2}:{port}" for number in range(2 * AT_ONCE)]
        for host in named:
            await hooks.ended(f"http://{host}/hook", caller="greedy")
        for _ in range(rest):
            await hooks.ended(f"http://{named[0]}/hook", caller="greedy")
        sender = hooks.sender([*named, honest.host])
        assert 0 < await sender.start_due() < AT_ONCE
        await hooks.ended(honest.url, caller="honest")
        await hooks.ended(honest.url)
        for _ in range(3):
            await sender.start_due()
        await until(lambda: len(honest.received) == 2)
        silent.hold.set()
        for task in sender.sending:
            task.cancel()
        await asyncio.gather(*sender.sending, return_exceptions=True)
