"""The event decoder and the assembler: the same reply whatever networks and gateways do to the stream."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.shared.delegation import Usage
from deputize.shared.errors import ModelUnavailable
from deputize.worker.models.base import Reply, ReplyStarted, TextPart, ThinkingPart
from deputize.worker.models.stream import MAX_EVENT_BYTES, BrokenStream, EventDecoder, ReplyAssembler
from tests.fake_model import FakeModel, Turn, cut, reset, text
from tests.waiting import until
from tests.worker.models.asking import IMPATIENT, model_of, parts_of, prompt_of, reply_of, retries

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=6)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])
LEVELS: Any = reduce(lambda inner, _: {"a": inner}, range(300), 1)
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
def test_any_chunking_yields_the_same_events(
    events: list[dict[str, Any]], end: str, noise: bool, data: st.DataObject
) -> None:
    raw = b"".join(encoded(event, end, noise) for event in events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert decoded(chunks) == events


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_an_event_is_there_as_soon_as_its_last_byte_is(end: str) -> None:
    raw = encoded({"type": "ping"}, end, noise=False)
    decoder = EventDecoder()
    assert [event for at in range(len(raw)) for event in decoder.feed(raw[at : at + 1])] == [{"type": "ping"}]


def test_a_character_cut_in_two_is_read_whole() -> None:
    raw = 'data: {"text": "häß 漢 🙂"}\n\n'.encode()
    for at in range(len(raw)):
        assert decoded([raw[:at], raw[at:]]) == [{"text": "häß 漢 🙂"}]


@given(EVENTS.filter(len), st.sampled_from(["event: a\ndata: {}", "data: {}", "data:{}"]), ENDS, st.data())
def test_the_empty_lines_between_events_and_the_last_line_end_may_be_missing(
    events: list[dict[str, Any]], form: str, end: str, data: st.DataObject
) -> None:
    blank = data.draw(st.integers(0, 1)) + 1
    written = [form.replace("{}", json.dumps(event)).replace("\n", end) for event in events]
    raw = (end * blank).join(written).encode() + (end * data.draw(st.integers(0, 1))).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
    decoder = EventDecoder()
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    found = [event for chunk in chunks for event in decoder.feed(chunk)]
    assert [*found, *decoder.end()] == events
    assert [*decoder.end()] == []


@pytest.mark.parametrize("form", ["event: a\ndata: {}", "data: {}"])
def test_an_event_without_an_empty_line_is_there_when_the_next_one_begins(form: str) -> None:
    decoder, lines = EventDecoder(), [form.replace("{}", json.dumps({"n": number})) for number in range(3)]
    assert [*decoder.feed("\n".join(lines).encode())] == [{"n": 0}, {"n": 1}]


@pytest.mark.parametrize("rest", ['data: {"b": ', 'event: x\ndata: {"b', "event: x"])
def test_an_event_that_is_cut_at_the_end_is_left_out(rest: str) -> None:
    decoder = EventDecoder()
    assert [*decoder.feed(f'data: {{"a": 1}}\n{rest}'.encode()), *decoder.end()] == [{"a": 1}]


FORMS = {
    "line separators inside of a text": ('data: {"text": "a\u2028b\u0085c"}\n\n', [{"text": "a\u2028b\u0085c"}]),
    "several lines of data": ('event: x\ndata: {"a":\ndata: 1}\n\n', [{"a": 1}]),
    "no blank after the colon": ('data:{"a": 1}\n\n', [{"a": 1}]),
    "a byte order mark": ('\ufeffdata: {"a": 1}\n\n', [{"a": 1}]),
    "no data": (": hello\n\nevent: ping\n\nid: 4\n\n\n\ndata:\n\ndata: [DONE]\n\n", []),
    "an unfinished event": ('data: {"a": 1}\n', []),
    "many levels": ("data: " + '{"a": ' * 300 + "1" + "}" * 300 + "\n\n", [LEVELS]),
    "numbers that are none": ('data: {"a": [Infinity, 1e999]}\n\n', [{"a": [math.inf, math.inf]}]),
    "half a character": ('data: {"text":"a\\ud83d b \\ud83d\\ude00"}\n\n', [{"text": "a\ufffd b \U0001f600"}]),
}


@pytest.mark.parametrize(("sent", "events"), FORMS.values(), ids=FORMS)
def test_an_event_may_be_written_in_many_ways(sent: str, events: list[dict[str, Any]]) -> None:
    assert decoded([sent.encode()]) == events


@pytest.mark.parametrize("data", [b'{"a": ', b"hello", b"[1]", b'"text"', DEEP])
def test_data_that_is_no_json_object_breaks_the_stream(data: bytes) -> None:
    with pytest.raises(BrokenStream) as broken:
        decoded([b"data: " + data + b"\n\n"])
    assert broken.value.retryable


def test_an_event_that_never_ends_breaks_the_stream() -> None:
    chunk = b"x" * (1024 * 1024)
    with pytest.raises(BrokenStream, match="longer than"):
        decoded([chunk] * (MAX_EVENT_BYTES // len(chunk) + 1))


def test_what_was_published_before_an_event_that_does_not_fit_is_shown_and_counted() -> None:
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


OTHER_APIS = {
    "Chat Completions": [{"id": "c1", "object": "chat.completion.chunk", "choices": [{"delta": {"content": "Hi"}}]}],
    "Responses": [{"type": "response.created", "response": {"id": "r1"}}],
    "Gemini": [{"candidates": [{"content": {"parts": [{"text": "Hi"}]}}]}],
    "Bedrock": [{"messageStart": {"role": "assistant"}}],
    "Cohere": [{"type": "message-start", "delta": {}}],
    "Ollama": [{"model": "m", "message": {"role": "assistant", "content": "Hi"}, "done": False}],
    "another API": [{"text": "Hi"}, {"text": "there"}],
}


@pytest.mark.parametrize(("name", "events"), OTHER_APIS.items(), ids=OTHER_APIS)
async def test_a_stream_of_another_api_is_named_at_once_with_the_setting(
    fake: FakeModel, name: str, events: Events
) -> None:
    fake.script("", [Turn(raw=[{"type": None, **event} for event in events])])
    with pytest.raises(ModelUnavailable, match=r"instead of the Messages API\. Check ANTHROPIC_BASE_URL") as error:
        await reply_of(model_of(fake), "hello")
    assert name in str(error.value)
    assert (len(fake.journal), error.value.may_pass) == (1, False)


async def test_a_stream_of_nothing_but_pings_is_no_other_api(fake: FakeModel) -> None:
    fake.script("", [Turn(raw=[{"type": "ping"}, {"type": "an_event_of_the_future"}])])
    with pytest.raises(ModelUnavailable, match="after 6 tries"):
        await reply_of(model_of(fake), "hello")


async def test_an_error_after_the_stop_reason_is_no_part_of_the_reply(fake: FakeModel) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    fake.script("", [Turn(raw=[*start(), *block("text", said("Done.")), end()[0], error])])
    parts = await parts_of(model_of(fake), "hello")
    assert isinstance(parts[-1], Reply)
    assert (parts[-1].text, parts[-1].stop_reason, retries(parts)) == ("Done.", "end_turn", [])


Events = Sequence[Mapping[str, Any]]


def start(**usage: int) -> Events:
    return [{"type": "message_start", "message": {"id": "msg_1", "usage": usage or {"input_tokens": 10}}}]


def block(kind: str, *deltas: Mapping[str, Any], index: int = 0, **more: Any) -> Events:
    begun = {"type": "content_block_start", "index": index, "content_block": {"type": kind, **more}}
    pieces = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [begun, *pieces, {"type": "content_block_stop", "index": index}]


def said(words: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": words}


def thought(words: str) -> dict[str, Any]:
    return {"type": "thinking_delta", "thinking": words}


def signed(signature: str) -> dict[str, Any]:
    return {"type": "signature_delta", "signature": signature}


def end(stop: str | None = "end_turn", **usage: int) -> Events:
    return [
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage or {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


CALL = {"id": "toolu_1", "name": "read_file", "input": {}}
ARGUMENTS = {"type": "input_json_delta", "partial_json": '{"path": "a"}'}

READ_AS = {
    "thinking in a text block": (
        [*start(), *block("text", thought("Hm. "), thought("So."), said("Done.")), *end()],
        ("Done.", "Hm. So.", ["text"]),
    ),
    "thinking between texts": (
        [*start(), *block("text", said("It is "), thought("really?"), said("done.")), *end()],
        ("It is done.", "really?", ["text"]),
    ),
    "signed thinking in a text block": (
        [*start(), *block("text", thought("Hm."), signed("s1"), said("Done.")), *end()],
        ("Done.", "Hm.", ["text", "thinking"]),
    ),
    "text in a thinking block": (
        [*start(), *block("thinking", thought("Hm."), signed("s1"), said("Done.")), *end()],
        ("Done.", "Hm.", ["thinking", "text"]),
    ),
    "text in a block of a call": (
        [*start(), *block("tool_use", said("I read."), ARGUMENTS, **CALL), *end("tool_use")],
        ("I read.", "", ["tool_use", "text"]),
    ),
    "tagged thinking": (
        [*start(), *block("text", said("<think>\nHm.\n"), said("</think>\n\nDone.")), *end()],
        ("Done.", "\nHm.\n", ["text"]),
    ),
    "a tag within the answer": (
        [*start(), *block("text", said("It writes <think>Hm.</think> first.")), *end()],
        ("It writes <think>Hm.</think> first.", "", ["text"]),
    ),
    "a repeated start": (
        [*start(), *block("text", said("The one half, ")), *start(), *block("text", said("the other.")), *end()],
        ("The one half, the other.", "", ["text", "text"]),
    ),
    "a repeated start without a second block": (
        [*start(), *block("text", said("All of it.")), *start(), *end()],
        ("All of it.", "", ["text"]),
    ),
    "a reply that begins anew": (
        [*start(), *block("text", said("The ans")), *start(), *block("text", said("The answer.")), *end()],
        ("The answer.", "", ["text"]),
    ),
    "a call that begins anew": (
        [
            *(*start(), *block("tool_use", ARGUMENTS, **CALL)),
            *(*start(), *block("tool_use", ARGUMENTS, **CALL), *end("tool_use")),
        ],
        ("", "", ["tool_use"]),
    ),
    "the same index for all blocks": (
        [*start(), *block("text", said("One, ")), *block("text", said("two.")), *end()],
        ("One, two.", "", ["text", "text"]),
    ),
}


@pytest.mark.parametrize(("events", "expected"), READ_AS.values(), ids=READ_AS)
async def test_an_odd_stream_is_read_as_it_was_meant(fake: FakeModel, events: Events, expected: Any) -> None:
    fake.script("", [Turn(raw=events)])
    parts = await parts_of(model_of(fake), "hello")
    reply = parts[-1]
    assert isinstance(reply, Reply)
    assert (reply.text, reply.thinking, [each["type"] for each in reply.content]) == expected
    assert not retries(parts)


async def test_thinking_in_a_text_block_is_published_as_thinking(fake: FakeModel) -> None:
    fake.script("", [Turn(raw=READ_AS["thinking in a text block"][0])])
    parts = await parts_of(model_of(fake), "hello")
    assert [part for part in parts if isinstance(part, TextPart)] == [TextPart("Done.")]
    assert "".join(part.text for part in parts if isinstance(part, ThinkingPart)) == "Hm. So."


CORPUS = sorted(Path(__file__).parents[2].joinpath("corpus/streams").glob("*.sse"))
"""Streams that servers and gateways were reported to send: the source, what is odd, what is to be read, the events."""


def read(raw: bytes) -> dict[str, Any]:
    """What the assembler reads from a stream that comes in small chunks."""
    assembler, decoder = ReplyAssembler(None, 5000), EventDecoder()
    for at in range(0, len(raw), 100):
        assembler.feed(decoder.feed(raw[at : at + 100]))
    if assembler.failure or not (assembler.done or assembler.stop_reason):
        return {"failure": str(assembler.failure or "the stream was cut")}
    reply = assembler.finish()
    sent = reply.sendable(set())
    return {
        "text": reply.text,
        "thinking": reply.thinking,
        "types": [block["type"] for block in reply.content],
        "calls": [[call.id, call.name, call.arguments] for call in reply.calls],
        "problem": "; ".join(call.problem for call in reply.calls if call.problem),
        "sent": [call.id for call in sent.calls],
        "stop": reply.stop_reason,
        "input": reply.usage.input_tokens,
        "output": reply.usage.output_tokens,
        "cache_write": reply.usage.cache_write_tokens,
        "estimated": reply.estimated,
    }


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_a_stream_of_the_corpus_is_read_as_it_was_meant(file: Path) -> None:
    source, _, expectation, *_ = file.read_text("utf-8").split("\n")
    usual = {"stop": "end_turn", "problem": "", "estimated": False}
    expected = usual | json.loads(expectation.removeprefix(": expect "))
    found = read(file.read_bytes())
    assert source.startswith(": source https://github.com/")
    if "failure" in expected:
        assert expected["failure"] in found["failure"]
        return
    problem = expected.pop("problem")
    assert (problem in found["problem"], bool(problem)) == (True, bool(found["problem"]))
    assert {name: found[name] for name in expected} == expected


async def test_a_stream_that_goes_on_after_its_stop_reason_is_not_waited_for(fake: FakeModel) -> None:
    """Some gateways send pings for ever instead of message_stop (tombii/better-ccflare#307)."""
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
    pings = [{"type": "ping"}] * 2000
    fake.script("", [Turn(raw=[*start(), *block("text", said("Done.")), last, *pings], pace=0.01)])
    reply = await reply_of(model_of(fake, replace(IMPATIENT, end_timeout=0.05)), "hello")
    assert (reply.text, reply.stop_reason) == ("Done.", "end_turn")
    await until(lambda: fake.open == 0)
    assert fake.journal[0].outcome == "aborted"


@pytest.mark.parametrize("fault", [cut(after=99), reset(after=99)], ids=lambda fault: fault.kind)
async def test_a_stream_that_ends_after_its_stop_reason_is_the_reply(fake: FakeModel, fault: Any) -> None:
    fake.script("", [Turn([text("All of it.")], faults=[fault] * 9)])
    parts = await parts_of(model_of(fake), "hello")
    assert isinstance(parts[-1], Reply)
    assert (parts[-1].text, parts[-1].stop_reason, len(fake.journal)) == ("All of it.", "end_turn", 1)


@pytest.mark.parametrize("after", [0, 1, 3, 5])
async def test_a_stream_that_ends_before_it_is_not(fake: FakeModel, after: int) -> None:
    fake.script("", [Turn([text("All of it.")], faults=[cut(after=after)])])
    assert (await reply_of(model_of(fake), "hello")).text == "All of it."
    assert len(fake.journal) == 2


async def test_a_reply_without_a_stop_reason_ends_with_its_message(fake: FakeModel) -> None:
    fake.script("", [Turn(raw=[*start(), *block("text", said("Done.")), *end(None)])])
    reply = await reply_of(model_of(fake), "hello")
    assert (reply.text, reply.stop_reason) == ("Done.", "")


DETAILS = {"type": "refusal", "category": "cyber", "explanation": "This would do harm."}


@pytest.mark.parametrize(
    ("details", "shown"),
    [
        (DETAILS, "cyber: This would do harm."),
        ({**DETAILS, "explanation": None}, "cyber"),
        ({**DETAILS, "category": None}, "This would do harm."),
        ({**DETAILS, "explanation": "x" * 5000}, None),
        ({"category": ["cyber"]}, ""),
        ("cyber", ""),
    ],
)
async def test_why_the_model_refused_is_part_of_the_reply(fake: FakeModel, details: Any, shown: str | None) -> None:
    fake.script("", [Turn([text("No.")], stop="refusal", details=details)])
    reply = await reply_of(model_of(fake), "hello")
    assert reply.stop_reason == "refusal"
    assert reply.refusal == shown if shown is not None else len(reply.refusal) < 1100


# Counts

WORDS = "word " * 600
UNCOUNTED = {
    "nothing": [{"type": "message_start", "message": {}}, *block("text", said(WORDS)), *end()[1:]],
    "zeros": [*start(input_tokens=0, output_tokens=0), *block("text", said(WORDS)), *end(output_tokens=0)],
    "null": [
        {"type": "message_start", "message": {"usage": None}},
        *block("text", said(WORDS)),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": None},
    ],
    "thinking": [{"type": "message_start", "message": {}}, *block("text", thought(WORDS), said("Done.")), *end()[1:]],
    "no message_start": [*block("text", said(WORDS)), *end(output_tokens=0)],
}


@pytest.mark.parametrize("events", UNCOUNTED.values(), ids=UNCOUNTED)
async def test_missing_counts_are_estimated(fake: FakeModel, events: Events) -> None:
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    fake.script("", [Turn(raw=[*events, last])])
    reply = await reply_of(model_of(fake), prompt_of("hello " * 3000))
    assert reply.estimated
    assert 3000 <= reply.usage.input_tokens <= 9000
    assert 600 <= reply.usage.output_tokens <= 1800
    assert (reply.usage.cost_usd or 0) > 0.01


@pytest.mark.parametrize(
    "events",
    [
        [*start(input_tokens=100, output_tokens=1), *block("text", said(WORDS)), *end(output_tokens=50)],
        [*start(input_tokens=0), *block("text", said(WORDS)), *end(input_tokens=100, output_tokens=50)],
        [*start(input_tokens=100), *block("text", said(WORDS)), *end(input_tokens=0, output_tokens=50)],
        [*start(input_tokens=100), *start(input_tokens=0), *block("text", said(WORDS)), *end(output_tokens=50)],
    ],
)
def test_counts_that_were_sent_count(events: Events) -> None:
    assembler = ReplyAssembler(None, 5000)
    assembler.feed([dict(event) for event in events])
    reply = assembler.finish()
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.estimated) == (100, 50, False)
