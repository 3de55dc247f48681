"""The same questions to every model: the scripted one, the Messages API behind real sockets, and calls in XML."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from deputize.shared.errors import ErrorType, ModelUnavailable, ToolError
from deputize.worker.core.conversation import Conversation
from deputize.worker.models import MODELS, close_models
from deputize.worker.models.base import Model, Part, Reply, ReplyStarted, Retrying, TextPart, ThinkingPart
from deputize.worker.models.scripted import Script, ScriptedModel
from deputize.worker.tools.base import ToolResult
from deputize.worker.xml_calls.instruction import format_tool_call
from deputize.worker.xml_calls.model import XmlCalls
from tests.fake_model import FakeModel, Turn, overload, refuse, text, thinking
from tests.fake_model import call as tool_use
from tests.worker.models.asking import model_of, parts_of, prompt_of, reply_of


@dataclass(frozen=True)
class Says:
    """One reply, in words both kinds of model understand. ``fault``: it fails once before; ``gone``: for good."""

    thought: str = ""
    words: str = ""
    calls: Sequence[Mapping[str, Any]] = ()
    fault: str = ""
    gone: bool = False
    delay: float = 0.0


Maker = Callable[..., Model]


def scripted(*turns: Says) -> Model:
    def blocks(turn: Says) -> list[dict[str, Any]]:
        return [
            *([{"thinking": turn.thought}] if turn.thought else []),
            *([{"text": turn.words}] if turn.words else []),
            *({"call": "read_file", "arguments": dict(arguments)} for arguments in turn.calls),
        ]

    def faults(turn: Says) -> list[dict[str, Any]]:
        played = {"overloaded": "cut", "refused": "retry"}.get(turn.fault)
        gone = [{"kind": "unavailable", "message": "the key is wrong"}] if turn.gone else []
        return ([{"kind": played, "message": turn.fault}] if played else []) + gone

    rule = {"turns": [{"blocks": blocks(turn), "faults": faults(turn), "delay": turn.delay} for turn in turns]}
    return ScriptedModel(Script.model_validate({"rules": [rule], "label": ""}))


def over_http(fake: FakeModel, *turns: Says) -> Model:
    def blocks(turn: Says) -> list[dict[str, Any]]:
        return [
            *([thinking(turn.thought)] if turn.thought else []),
            *([text(turn.words)] if turn.words else []),
            *(tool_use("read_file", **arguments) for arguments in turn.calls),
        ]

    def faults(turn: Says) -> list[Any]:
        played = {"overloaded": [overload()], "refused": [refuse(529)]}.get(turn.fault, [])
        return [*played, *([refuse(401)] if turn.gone else [])]

    fake.script("", [Turn(blocks(turn), delay=turn.delay, faults=faults(turn)) for turn in turns])
    return model_of(fake)


def in_xml(fake: FakeModel, *turns: Says) -> Model:
    """The same model, writing its calls into its words."""

    def spelled(turn: Says) -> Says:
        calls = [format_tool_call("read_file", arguments) for arguments in turn.calls]
        return replace(turn, words="\n".join([*([turn.words] if turn.words else []), *calls]), calls=())

    return XmlCalls(over_http(fake, *map(spelled, turns)))


@pytest.fixture(params=[*MODELS, "xml"])
async def model_that(request: pytest.FixtureRequest) -> AsyncIterator[Maker]:
    """Returns a model that replies with these, turn by turn."""
    async with FakeModel() as fake:
        makers: dict[str, Maker] = {
            "scripted": scripted,
            "anthropic": partial(over_http, fake),
            "xml": partial(in_xml, fake),
        }
        yield makers[request.param]
        await close_models()


def texts(parts: Sequence[Part], kind: type[TextPart] | type[ThinkingPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, kind))


async def test_deltas_come_in_order_and_exactly_one_reply_last(model_that: Maker) -> None:
    says = Says(thought="First I think about it.", words="Then I say it in words.", calls=[{"path": "a"}])
    parts = await parts_of(model_that(says), "hello")
    *deltas, reply = parts
    assert isinstance(reply, Reply)
    order = [type(part) for part in deltas]
    assert set(order) == {ThinkingPart, TextPart}
    assert order == sorted(order, key=[ThinkingPart, TextPart].index)
    assert texts(parts, ThinkingPart) == reply.thinking == says.thought
    assert texts(parts, TextPart) == reply.text == says.words


async def test_the_cost_of_the_prompt_is_known_before_the_first_word(model_that: Maker) -> None:
    model = model_that(Says(words="hello"))
    parts = [part async for part in model.reply(prompt_of("hello"))]
    begun, reply = parts[0], parts[-1]
    assert isinstance(begun, ReplyStarted)
    assert isinstance(reply, Reply)
    assert begun.usage.input_tokens == reply.usage.input_tokens > 0
    assert sum(isinstance(part, ReplyStarted) for part in parts) == 1


@pytest.mark.requirement("S000-105")
async def test_a_reply_distinguishes_its_calls(model_that: Maker) -> None:
    reply = await reply_of(model_that(Says(calls=[{"path": "a"}, {"path": "a"}, {}])), "hello")
    assert [(call.name, call.arguments, call.problem) for call in reply.calls] == [
        ("read_file", {"path": "a"}, None),
        ("read_file", {"path": "a"}, None),
        ("read_file", {}, None),
    ]
    assert len({call.id for call in reply.calls}) == 3
    assert reply.stop_reason == "tool_use"


async def test_without_calls_the_turn_ends(model_that: Maker) -> None:
    reply = await reply_of(model_that(Says(words="Done.")), "hello")
    assert (reply.text, reply.calls, reply.stop_reason) == ("Done.", [], "end_turn")


@pytest.mark.requirement("S000-109", "P-09")
async def test_answers_travel_back_and_the_next_turn_follows(model_that: Maker) -> None:
    """Every call is answered by its id, successes and failures alike, and both endpoints accept the conversation."""
    calls = [{"path": "ü"}, {"path": "b"}]
    model = model_that(Says(thought="hm", words="one", calls=calls), Says(calls=calls), Says(words="three"))
    history = Conversation()
    history.ask("hello")
    failed = ToolResult.failed(ToolError(ErrorType.FILE_NOT_FOUND, "File not found: b"), "some output")
    while (reply := await reply_of(model, prompt_of(history.messages))).calls:
        history.add(reply)
        history.answer(zip(reply.calls, [ToolResult("ünï\u2028 \x00 🙂"), failed], strict=True), note="Go on.")
    assert reply.text == "three"
    assert len(history.messages) == 5


async def test_the_content_of_a_reply_is_plain_json(model_that: Maker) -> None:
    reply = await reply_of(model_that(Says(thought="hm", words="ünï", calls=[{"path": "a"}])), "hello")
    assert json.loads(json.dumps(reply.content)) == reply.content
    assert [block["type"] for block in reply.content] == ["thinking", "text", "tool_use"]


@pytest.mark.parametrize("fault", ["refused", "overloaded"])
async def test_a_transient_failure_is_reported_and_the_turn_is_repeated(model_that: Maker, fault: str) -> None:
    says = Says(words="A text of many words, some of which come twice.", fault=fault)
    parts = await parts_of(model_that(says), "hello")
    (retry,) = [part for part in parts if isinstance(part, Retrying)]
    assert retry.error
    assert retry.delay >= 0
    assert texts(parts[parts.index(retry) :], TextPart) == says.words
    assert isinstance(parts[-1], Reply)
    assert parts[-1].text == says.words


async def test_a_model_that_cannot_be_used_reports_it(model_that: Maker) -> None:
    with pytest.raises(ModelUnavailable) as error:
        await parts_of(model_that(Says(gone=True)), "hello")
    assert str(error.value)


async def test_forbidden_tools_are_not_called(model_that: Maker) -> None:
    model = model_that(Says(words="Words only.", calls=[{"path": "a"}]))
    reply = await reply_of(model, prompt_of("hello", allow_tools=False))
    assert reply.calls == []
    assert reply.text


@pytest.mark.requirement("P-03")
async def test_conversations_at_once_do_not_mix(model_that: Maker) -> None:
    model = model_that(Says(words="first", calls=[{"path": "a"}]), Says(words="second"))

    async def converse() -> list[str]:
        history = Conversation()
        history.ask("hello")
        first = await reply_of(model, prompt_of(history.messages))
        history.add(first)
        history.answer([(call, ToolResult("x")) for call in first.calls])
        return [first.text, (await reply_of(model, prompt_of(history.messages))).text]

    assert await asyncio.gather(*(converse() for _ in range(20))) == [["first", "second"]] * 20


async def test_tokens_are_counted(model_that: Maker) -> None:
    model = model_that(Says(words="Some words."))
    usage = (await reply_of(model, "hello")).usage
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0
    price = model.price()
    assert usage.cost_usd == (price.cost(usage) if price else None)


@pytest.mark.requirement("P-15")
async def test_cancelling_the_reader_ends_the_reply(model_that: Maker) -> None:
    reading = asyncio.create_task(parts_of(model_that(Says(words="late", delay=60)), "hello"))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(reading, 30)


async def test_a_reply_can_be_left_in_the_middle(model_that: Maker) -> None:
    model = model_that(Says(words="Word after word after word after word after word."))
    async with aclosing(model.reply(prompt_of("hello"))) as stream:
        assert isinstance(await anext(stream), ReplyStarted)
        assert isinstance(await anext(stream), TextPart)
    assert (await reply_of(model, "hello")).text


def test_a_model_has_a_name(model_that: Maker) -> None:
    assert model_that(Says(words="x")).name
