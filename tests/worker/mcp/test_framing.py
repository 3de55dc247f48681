"""Messages in forms that no SDK sends: every one that can be recognized is taken, and others end their call alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError

from deputize.worker.mcp.answers import messages_in
from deputize.worker.mcp.streams import SILENCE, Incoming

ONE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "result": {"content": [{"type": "text", "text": "a {b} [c]"}], "n": {}},
}
TWO: dict[str, Any] = {**ONE, "id": 2}
PLAIN = json.dumps(ONE)

FORMS = {
    "one line": (f"{PLAIN}\n", [1]),
    "blanks before it": (f"  \t {PLAIN}\n", [1]),
    "a byte order mark": (f"\ufeff{PLAIN}\n", [1]),
    "CRLF": (f"{PLAIN}\r\n", [1]),
    "a NUL before it": (f"\0{PLAIN}\n", [1]),
    "several lines": (f"{json.dumps(ONE, indent=2)}\n", [1]),
    "several lines with tabs and CRLF": (json.dumps(ONE, indent="\t").replace("\n", "\r\n") + "\r\n", [1]),
    "several lines that close in the middle": ('{"jsonrpc": "2.0", "result": {}\n, "id": 1}\n', [1]),
    "a batch": (f"[{PLAIN}, {json.dumps(TWO)}]\n", [1, 2]),
    "a batch of one over several lines": (f"{json.dumps([ONE], indent=1)}\n", [1]),
    "two on a line": (f"{PLAIN} {json.dumps(TWO)}\n", [1, 2]),
    "two on a line without a blank": (f"{PLAIN}{json.dumps(TWO)}\n", [1, 2]),
    "words before it": (f"INFO ready: {PLAIN}\n", [1]),
    "words after it": (f"{PLAIN} done in 3 ms\n", [1]),
    "words in braces before it": (f"[info] {{x}} {PLAIN}\n", [1]),
    "a log line in JSON before it": (f'{{"level": "info", "id": 7}}\n{PLAIN}\n', [1]),
    "no line end": (PLAIN, [1]),
    "several lines without the last line end": (json.dumps(ONE, indent=2), [1]),
    "no version": ('{"id": 1, "result": {}}\n', [1]),
    "another version": ('{"jsonrpc": 2.0, "id": 1, "result": {}}\n', [1]),
    "null as its error": ('{"jsonrpc": "1.0", "id": 1, "result": {}, "error": null}\n', [1]),
    "a broken one before it": (f'{{"jsonrpc": "2.0", "method": nothing}} {PLAIN}\n', [1]),
    "a cut one before it": (f'{{"jsonrpc":"2.0","id":2,"result":{{"a":"cut\n{PLAIN}\n', [2, 1]),
}


async def received(
    raw: bytes, sizes: Sequence[int] = (), asked: Sequence[int] = (1,), *, ends: bool = True
) -> list[Any]:
    noise: list[bytes] = []
    incoming = Incoming(noise.append)
    incoming.asked.update(asked)
    for size in sizes:
        incoming.feed(raw[:size])
        raw = raw[size:]
    incoming.feed(raw)
    if ends:
        incoming.end()
        return [item.message async for item in incoming if isinstance(item, SessionMessage)]
    assert SILENCE < 1, "a call learns within a second that its answer cannot be read"
    async with asyncio.timeout(10):  # the server stays silent; beside other work the loop may come late
        item = await incoming.receive()
    assert isinstance(item, SessionMessage)
    return [item.message]


@pytest.mark.parametrize(("text", "ids"), FORMS.values(), ids=FORMS)
@given(sizes=st.lists(st.integers(1, 60), max_size=12))
def test_a_message_in_any_form_is_taken_in_pieces_of_any_size(text: str, ids: list[int], sizes: list[int]) -> None:
    messages = asyncio.run(received(text.encode(), sizes))
    assert [message.id for message in messages] == ids
    assert not isinstance(messages[-1], JSONRPCError)


@pytest.mark.parametrize(("text", "ids"), FORMS.values(), ids=FORMS)
async def test_it_is_taken_while_the_server_runs_on(text: str, ids: list[int]) -> None:
    (message,) = await received(text.encode(), ends=False)
    assert message.id == ids[0]


WRONG = {
    "cut": '{"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text"\n',
    "cut in a text": '{"jsonrpc": "2.0", "id": 1, "result": {"content": "abc\n',
    "not JSON": '{"jsonrpc": "2.0", "id": 1, "result": nothing}\n',
    "without an id": '{"jsonrpc": "2.0", "result": {}}\n',
    "with null as its id": '{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "Parse error"}}\n',
    "not JSON and without an id": '{"jsonrpc": "2.0", "result": nothing}\n',
    "neither result nor error": '{"jsonrpc": "2.0", "id": 1}\n',
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
async def test_an_answer_that_cannot_be_read_is_an_error_of_its_call(text: str) -> None:
    (message,) = await received(text.encode(), ends=False)
    assert isinstance(message, JSONRPCError)
    assert message.id == 1


async def test_an_answer_without_an_id_is_noise_where_several_calls_are_open() -> None:
    assert await received(WRONG["without an id"].encode(), asked=(1, 2)) == []


@pytest.mark.parametrize(
    "text", ["hello\n", "[1, 2]\n", "{x}\n", '{"id": 3, "level": "info"}\n', "[\n", "{\n", '"jsonrpc"\n']
)
async def test_words_are_no_messages(text: str) -> None:
    assert await received(text.encode()) == []
    assert [message.id for message in await received((text + PLAIN + "\n").encode())] == [1]


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reading(data: bytes) -> None:
    messages_in(data)
    assert [message.id for message in asyncio.run(received(data + b"\n" + PLAIN.encode() + b"\n"))][-1:] == [1]
