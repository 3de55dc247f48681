"""What a program prints becomes messages, and which addresses are connected to."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage

from deputize.worker.mcp.streams import (
    BURST_BYTES,
    BURST_LINES,
    BYTES_A_SECOND,
    LINES_A_SECOND,
    MAX_MESSAGE,
    MAX_NONSENSE,
    MAX_PAUSED,
    MAX_WAITING,
    Incoming,
    Pace,
    guarded,
)
from deputize.worker.web.targets import ForbiddenTarget
from tests.internet import PUBLIC, Internet, response
from tests.lag import lag_probe


def message(number: int, text: str = "") -> bytes:
    return f'{{"jsonrpc":"2.0","id":{number},"result":{{"text":"{text}"}}}}\n'.encode()


async def everything(incoming: Incoming) -> list[object]:
    """The ids of all that is there, in order."""
    incoming.end()
    found = [vars(item.message)["id"] async for item in incoming if isinstance(item, SessionMessage)]
    assert incoming.over.is_set()
    return found


@given(st.lists(st.integers(1, 40), max_size=60))
def test_pieces_of_any_size_make_the_same_messages(sizes: list[int]) -> None:
    async def feed() -> None:
        noise: list[bytes] = []
        incoming = Incoming(noise.append)
        said = b"hello\r\n\n" + message(1, "ünï") + b"[1]\n" + message(2) + b"{no json}\n" + message(3)
        rest = said
        for size in sizes:
            incoming.feed(rest[:size])
            rest = rest[size:]
        incoming.feed(rest)
        assert await everything(incoming) == [1, 2, 3]
        assert b"".join(noise).split() == [b"hello", b"[1]", b"{no", b"json}"]

    asyncio.run(feed())


async def test_a_reader_waits_for_what_comes_and_reads_what_came_before_the_end() -> None:
    incoming = Incoming(lambda line: None)
    reading = asyncio.create_task(incoming.receive())
    await asyncio.sleep(0)
    assert not reading.done()
    incoming.feed(message(1) + message(2))
    assert isinstance(await reading, SessionMessage)
    assert not incoming.over.is_set()
    assert await everything(incoming) == [2]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"{" + b"x" * MAX_MESSAGE, "it sent more than"),
        (b"{}\n" * (MAX_NONSENSE + 1), "its messages are not valid JSON-RPC"),
    ],
)
async def test_who_says_what_nobody_can_read_is_not_listened_to_any_more(said: bytes, why: str) -> None:
    incoming = Incoming(lambda line: None)
    incoming.feed(message(1) + said)
    incoming.feed(message(2))
    assert await everything(incoming) == [1]
    assert incoming.broken is not None
    assert incoming.broken.startswith(why)


async def test_who_talks_faster_than_anybody_reads_has_to_wait() -> None:
    incoming, pauses = Incoming(lambda line: None), list[float]()
    incoming.pause = pauses.append
    incoming.feed(message(1) * MAX_WAITING)
    assert pauses == []
    incoming.feed(message(2))
    assert len(pauses) == 1


FLOODS = {
    "newlines": b"\n" * 262_144,
    "greetings": b"hi\n" * 80_000,
    "notifications": b'{"jsonrpc":"2.0","method":"n"}\n' * 8000,
    "large notifications": b'{"jsonrpc":"2.0","method":"n","params":{"x":"' + b"x" * 7_800_000 + b'"}}\n',
    "a line without end": b"x" * 262_144,
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_a_flood_is_heard_slowly_and_in_the_end_not_at_all(flood: bytes) -> None:
    incoming, pauses = Incoming(lambda line: None), list[float]()
    incoming.pause = pauses.append
    heard = 0
    async with lag_probe() as lag:
        while incoming.broken is None and heard < 1000:
            incoming.feed(flood)
            heard += 1
            await asyncio.sleep(0)
    assert lag.longest < 1
    assert incoming.broken in {
        "it sends messages faster than they can be read",
        f"it sent more than {MAX_MESSAGE} bytes in one message",
    }
    assert sum(pauses) <= MAX_PAUSED + 2
    assert (sum(pauses) > MAX_PAUSED) is ("faster than" in incoming.broken)


def test_a_server_is_heard_at_once_until_it_has_said_too_much_and_again_after_a_rest() -> None:
    now = 0.0
    pace = Pace(lambda: now)
    assert pace.pause(BURST_BYTES, BURST_LINES) == 0
    assert pace.pause(BYTES_A_SECOND // 2, 0) == 0.5
    assert pace.pause(0, LINES_A_SECOND * 5) == 1
    now += 1000
    assert pace.pause(BURST_BYTES, 1) == 0
    for _ in range(int(MAX_PAUSED) + 1):
        assert not pace.exhausted
        pace.pause(BYTES_A_SECOND * 10, 1)
    assert pace.exhausted
    now += 1000
    pace.pause(1, 1)
    assert not pace.exhausted


async def test_many_messages_of_one_piece_are_parsed_bit_by_bit_and_none_is_lost() -> None:
    incoming = Incoming(lambda line: None)
    incoming.feed(b"".join(map(message, range(3000))))
    rounds = 0

    async def others() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    assert await everything(incoming) == [*range(3000)]
    assert rounds > 20
    beside.cancel()
    await asyncio.wait([beside])


async def test_notifications_that_mean_nothing_here_reach_nobody() -> None:
    incoming = Incoming(lambda line: None)
    progress = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}\n'
    incoming.feed(b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}\n' * 50 + progress + message(1))
    incoming.end()
    assert len([each async for each in incoming]) == 2


def internet(host: str, address: str) -> Internet:
    return Internet({host: [[address]]}, lambda host, path: response(f"{host} {path}", "text/plain"))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "169.254.169.254", "fe80::1", "::ffff:127.0.0.1"])
async def test_a_name_that_leads_to_this_machine_is_not_dialled(address: str) -> None:
    network = internet("tools.example", address)
    async with httpx2.AsyncClient(transport=guarded("http://tools.example:9000/mcp", network)) as client:
        with pytest.raises(ForbiddenTarget, match=r"tools\.example is not an allowed target"):
            await client.get("http://tools.example:9000/mcp")
    assert network.dialled == []


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("tools.example", "10.0.0.5"),
        ("tools.example", PUBLIC),
        ("localhost", "127.0.0.1"),
        ("LOCALHOST", "::1"),
        ("tools.localhost", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
    ],
)
async def test_what_the_url_says_itself_is_dialled(host: str, address: str) -> None:
    network, url = internet(host.lower(), address), f"http://{host}:9000/mcp"
    async with httpx2.AsyncClient(transport=guarded(url, network)) as client:
        assert (await client.get(url)).status_code == 200
    assert network.dialled == [(address, 9000)]
