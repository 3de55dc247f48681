"""What a server sends becomes messages: one wrong thing costs that thing and no more, over each transport."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage

from deputize.worker.mcp.answers import MAX_MESSAGE, EventLines
from deputize.worker.mcp.streams import (
    BURST_BYTES,
    BURST_LINES,
    BYTES_A_SECOND,
    LINES_A_SECOND,
    MAX_NONSENSE,
    MAX_PAUSED,
    MAX_WAITING,
    Incoming,
    Pace,
    guarded,
)
from deputize.worker.web.targets import ForbiddenTarget
from tests.network.internet import PUBLIC, Internet, response
from tests.processes.lag import lag_probe
from tests.runs.toolbench import Toolbench
from tests.worker.mcp.blunt_server import blunt_server
from tests.worker.mcp.opening import Opened, opened
from tests.worker.mcp.servers import raw

pytestmark = pytest.mark.usefixtures("look_around")  # which processes are ours

WAYS = ["stdio", "json", "events", "sse"]
HEAD = '{"jsonrpc":"2.0","id":$ID,'
GOOD = HEAD + '"result":{"content":[{"type":"text","text":"good"}]}}'
CANNOT = "its answer cannot be read"


def content(*blocks: str, more: str = "") -> str:
    return HEAD + f'"result":{{"content":[{",".join(blocks)}]{more}}}}}'


def text(words: str) -> str:
    return f'{{"type":"text","text":"{words}"}}'


CASES: dict[str, tuple[tuple[Any, ...], str]] = {
    "half a pair": ((content(text("a\\ud83d b")),), "a\ufffd b"),
    "the other half": ((content(text("\\\\\\uDE00 b")),), "\\\ufffd b"),
    "a pair": ((content(text("\\ud83d\\ude00 \\ud83d")),), "\U0001f600 \ufffd"),
    "a half in a name": ((content(text("c"), more=',"_meta":{"\\udc00":1}'),), "c"),
    "invalid UTF-8": ((content(text("a\xff b")),), "a\ufffd b"),
    "100,000 levels": ((HEAD + '"result":{"structuredContent":{"a":', "[", 100_000, ""), CANNOT),
    "100,000 levels that end": ((HEAD + '"result":{"a":', '{"a":', 100_000, "1" + "}" * 100_002), CANNOT),
    "too long": (
        (HEAD + '"result":{"content":[{"type":"text","text":"', "x", MAX_MESSAGE, '"}]}}'),
        " bytes",
    ),
    "an unknown type": (
        (content(text("good"), '{"type":"video","url":"x"}'),),
        "good\n[content of the type 'video' is",
    ),
    "no content at all": ((content(text("good"), "7", "null"),), "good\n[content of the type '7' is left out: "),
    "no text": ((content(text("good"), '{"type":"text","text":null}'),), "good\n[content of the type 'text' is left"),
    "numbers that are none": (
        (content(text("n"), more=',"structuredContent":{"a":NaN,"b":1e400,"c":-Infinity}'),),
        "n",
    ),
    "a large number": ((content(text("n"), more=',"structuredContent":{"a":' + "9" * 5000 + "}"),), CANNOT),
    "a list for an object": ((content(text("n"), more=',"structuredContent":[1,2]'),), "n\n[1,2]"),
    "content that is missing": ((HEAD + '"result":{"structuredContent":{"a":1}}}',), '{"a": 1}'),
    "no result": ((HEAD[:-1] + "}",), CANNOT),
    "a list as result": ((HEAD + '"result":[]}',), CANNOT),
    "a text as error": ((HEAD + '"error":"boom"}',), CANNOT),
    "the id at the end": (('{"result":[],"jsonrpc":"2.0","id":$ID}',), CANNOT),
    "a control character": ((content(text("a\x00b")),), CANNOT),
    "an answer twice": ((GOOD + "\n" + GOOD,), "good"),
    "another's id": ((GOOD.replace("$ID", "$ID000") + "\n" + GOOD,), "good"),
    "a notification without a form": (
        ('{"jsonrpc":"2.0","method":"notifications/progress","params":[]}\n' + GOOD,),
        "good",
    ),
    "a progress without a number": (
        ('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":"x"}}\n' + GOOD,),
        "good",
    ),
    "a large notification": (
        ('{"jsonrpc":"2.0","method":"notifications/message","params":{"data":[1', ",[]", 2_000_000, "]}}\n" + GOOD),
        "good",
    ),
}
ONE_MESSAGE = ("an answer twice", "another's id", "a notification", "a progress", "a large notification")


@asynccontextmanager
async def server(way: str, desk: Toolbench) -> AsyncIterator[Opened]:
    if way == "stdio":
        async with opened(desk, {"it": raw("blunt")}) as found:
            yield found
    else:
        async with blunt_server(way) as entry, opened(desk, {"it": entry}) as found:
            yield found


async def say(server: Opened, *parts: Any) -> str:
    given = [*parts, "", 0, ""][:4] if len(parts) == 1 else [*parts]
    async with asyncio.timeout(10):
        result = await server.call("mcp__it__say", parts=given)
    json.dumps(result.data, allow_nan=False)  # what it becomes goes on as JSON
    return result.error or result.content


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_wrong_in_an_answer_is_mended_left_out_or_ends_its_call_alone(way: str, desk: Toolbench) -> None:
    async with server(way, desk) as found:
        for name, (parts, expected) in CASES.items():
            if way == "json" and name.startswith(ONE_MESSAGE):
                continue
            assert expected in await say(found, *parts), name
            assert await say(found, GOOD) == "good", name


@pytest.mark.parametrize("way", WAYS)
async def test_a_tool_that_is_none_is_left_out_and_the_others_are_not(way: str, desk: Toolbench) -> None:
    async with server(way, desk) as found:
        said = [warning for warning in found.warnings if "is left out" in warning]
        assert any(
            "the tool 'no schema' is left out" in each and "inputSchema: Field required" in each for each in said
        )
        assert any("the tool 'no tool at all' is left out" in each for each in said)
        assert await say(found, GOOD) == "good"
        if way == "stdio":
            assert {"mcp__it__odd_output", "mcp__it__empty_schema", "mcp__it__echo"} <= found.tools.keys()


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_an_event_stream_is_the_same_in_pieces_of_any_size(size: int) -> None:
    good = b'event: message\r\nid: 7\r\ndata: {"jsonrpc":"2.0",\r\ndata: "id":1,"result":{}}\r\n\r\n: ping\n\n'
    rest = b"id: 8\n\nevent: endpoint\ndata: /x\n\n"
    whole = good + b'data: {"jsonrpc":"2.0","id":2,"result":{"a":"\\ud83d"}}\n' + rest
    lines, told = EventLines(MAX_MESSAGE), b""
    for at in range(0, len(whole), size):
        told += lines.readable(whole[at : at + size])
    assert told == good + b'data: {"jsonrpc":"2.0","id":2,"result":{"a":"\\ufffd"}}\n' + rest


def test_an_event_without_end_ends_the_call_that_it_answers() -> None:
    lines = EventLines(MAX_MESSAGE)
    told = lines.readable(b'data: {"jsonrpc":"2.0","id":4,"result":{"a":"')
    told += lines.readable(b"x" * MAX_MESSAGE)
    assert told.startswith(b'data: {"jsonrpc":"2.0","id":4,"error":')
    assert told.endswith(b"}\n\n")
    assert lines.readable(b"x" * 2 * MAX_MESSAGE) == b""
    assert lines.readable(b'"}}\n\n: ping\n') == b"\n: ping\n"


# the streams themselves


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
async def test_a_server_that_sends_invalid_messages_is_no_longer_read(said: bytes, why: str) -> None:
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


def test_a_server_is_heard_at_once_until_it_has_sent_too_much_and_again_after_a_pause() -> None:
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


async def test_notifications_without_a_meaning_here_are_dropped() -> None:
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
async def test_what_the_url_names_itself_is_dialled(host: str, address: str) -> None:
    network, url = internet(host.lower(), address), f"http://{host}:9000/mcp"
    async with httpx2.AsyncClient(transport=guarded(url, network)) as client:
        assert (await client.get(url)).status_code == 200
    assert network.dialled == [(address, 9000)]
