"""What gateways make of the stream: the reply is read all the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from deputize.worker.models.base import Reply, TextPart, ThinkingPart
from deputize.worker.models.stream import ReplyAssembler
from tests.fake_model import FakeModel, Turn, cut, reset, text
from tests.worker.models.asking import model_of, parts_of, prompt_of, reply_of, retries

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
