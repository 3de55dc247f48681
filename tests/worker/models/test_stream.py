"""The event decoder: whatever the network does to the bytes, the same events come out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.shared.delegation import Usage
from deputize.worker.models.base import ReplyStarted, TextPart
from deputize.worker.models.stream import MAX_EVENT_BYTES, BrokenStream, EventDecoder, ReplyAssembler

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=6)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])
DEEP = b'{"a": ' + b"[" * 800 + rb'["\ud83d"]' + b"]" * 800 + b"}"
"""Read by ``json``, and too deep to be gone through by a function that calls itself."""


def encoded(event: dict[str, Any], end: str, noise: bool) -> bytes:
    """One event as a server may send it; ``noise`` adds the lines that mean nothing here."""
    lines = [": keep alive", "event: some_type", "id: 7"] if noise else ["event: some_type"]
    lines += (
        [f"data: {json.dumps(event, ensure_ascii=False)}", "retry: 100"] if noise else [f"data: {json.dumps(event)}"]
    )
    return "".join(line + end for line in [*lines, ""]).encode()


def decoded(chunks: list[bytes]) -> list[dict[str, Any]]:
    decoder = EventDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


@given(EVENTS, ENDS, st.booleans(), st.data())
def test_any_chunking_gives_the_same_events(
    events: list[dict[str, Any]], end: str, noise: bool, data: st.DataObject
) -> None:
    raw = b"".join(encoded(event, end, noise) for event in events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert decoded(chunks) == events


@given(EVENTS, ENDS)
def test_one_byte_at_a_time_is_enough(events: list[dict[str, Any]], end: str) -> None:
    raw = b"".join(encoded(event, end, noise=True) for event in events)
    assert decoded([raw[at : at + 1] for at in range(len(raw))]) == events


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_an_event_is_there_as_soon_as_its_last_byte_is(end: str) -> None:
    raw = encoded({"type": "ping"}, end, noise=False)
    decoder = EventDecoder()
    assert [*decoder.feed(raw[:-1]), *decoder.feed(raw[-1:])] == [{"type": "ping"}]


def test_a_character_cut_in_two_is_read_whole() -> None:
    raw = 'data: {"text": "häß 漢 🙂"}\n\n'.encode()
    for at in range(len(raw)):
        assert decoded([raw[:at], raw[at:]]) == [{"text": "häß 漢 🙂"}]


def test_line_separators_inside_a_text_end_no_line() -> None:
    assert decoded(['data: {"text": "a\u2028b\u0085c"}\n\n'.encode()]) == [{"text": "a\u2028b\u0085c"}]


def test_several_data_lines_are_one_event() -> None:
    assert decoded([b'event: x\ndata: {"a":\ndata: 1}\n\n']) == [{"a": 1}]


def test_data_needs_no_blank_after_its_colon() -> None:
    assert decoded([b'data:{"a": 1}\n\n']) == [{"a": 1}]


def test_a_byte_order_mark_before_the_first_event_is_skipped() -> None:
    assert decoded([b'\xef\xbb\xbfdata: {"a": 1}\n\n']) == [{"a": 1}]


def test_what_holds_no_data_is_no_event() -> None:
    assert decoded([b": hello\n\nevent: ping\n\nid: 4\n\n\n\ndata:\n\ndata: [DONE]\n\n"]) == []


def test_an_unfinished_event_is_none() -> None:
    assert decoded([b'data: {"a": 1}\n']) == []


@pytest.mark.parametrize("data", [b'{"a": ', b"hello", b"[1]", b'"text"', DEEP])
def test_data_that_is_no_json_object_breaks_the_stream(data: bytes) -> None:
    with pytest.raises(BrokenStream) as broken:
        decoded([b"data: " + data + b"\n\n"])
    assert broken.value.retryable


def test_an_event_that_never_ends_breaks_the_stream() -> None:
    chunk = b"x" * (1024 * 1024)
    with pytest.raises(BrokenStream, match="longer than"):
        decoded([chunk] * (MAX_EVENT_BYTES // len(chunk) + 1))


def test_half_a_character_is_shown_as_one_that_is_missing() -> None:
    decoder = EventDecoder()
    events = [*decoder.feed(b'data: {"type":"x","text":"a\\ud83d b \\ud83d\\ude00"}\n\n')]
    assert events == [{"type": "x", "text": "a\ufffd b \U0001f600"}]


def test_what_was_said_before_an_event_that_does_not_fit_is_shown_and_counted() -> None:
    started = b'data: {"type":"message_start","message":{"usage":{"input_tokens":7}}}\n\n'
    said = b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hello"}}\n\n'
    assembler = ReplyAssembler(None)
    parts = assembler.feed(EventDecoder().feed(started + said + b"data: {not JSON\n\n" + said))
    assert parts == [ReplyStarted(Usage(input_tokens=7, cost_usd=None, cache_saved_usd=None)), TextPart("Hello")]
    assert isinstance(assembler.failure, BrokenStream)


def test_arguments_that_come_whole_are_checked_like_those_in_pieces() -> None:
    value: Any = {}
    for _ in range(70):
        value = {"a": value}
    assembler = ReplyAssembler(None)
    assembler.feed([{"type": "content_block_start", "content_block": {"type": "tool_use", "id": "1", "input": value}}])
    (made,) = assembler.finish().calls
    assert (made.arguments, made.problem) == (
        {},
        "the arguments are not valid JSON (it is nested more than 64 deep): ",
    )
