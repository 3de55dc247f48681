"""One wrong thing in what a server sends costs that thing and no more, over each transport."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deputize.worker.mcp.answers import MAX_MESSAGE, EventLines
from tests.toolbench import Toolbench
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
