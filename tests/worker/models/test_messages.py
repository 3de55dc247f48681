"""What the adapter for the Messages API sends, and what it makes of what comes back."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from pydantic import SecretStr

from deputize.shared.delegation import Usage
from deputize.worker.core.conversation import Conversation
from deputize.worker.models import close_models
from deputize.worker.models.anthropic import AnthropicModel
from deputize.worker.models.base import Call, Model, Prompt, ReplyStarted, TextPart, ToolSpec
from deputize.worker.models.caching import shared_prefixes
from deputize.worker.models.credentials import Credentials
from deputize.worker.tools.base import ToolResult
from deputize.worker.xml_calls.model import XmlCalls
from tests.fake_model import FakeModel, Turn, call, stall, text, thinking
from tests.worker.models.asking import IMPATIENT, MANY, READ, model_of, prompt_of, reply_of

# What is sent


@pytest.mark.requirement("S000-004", "S000-032")
async def test_the_request_is_what_the_api_wants(fake: FakeModel) -> None:
    await reply_of(model_of(fake), prompt_of("Say ü", max_output_tokens=77))
    (asked,) = fake.journal
    assert asked.body == {
        "model": "claude-sonnet-5-5",
        "stream": True,
        "cache_control": {"type": "ephemeral"},
        "thinking": {"type": "adaptive", "display": "summarized"},
        "system": "You are a worker.",
        "tools": [{"name": "read_file", "description": "Reads a file.", "input_schema": READ.schema}],
        "max_tokens": 77,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Say ü"}]}],
    }
    assert asked.headers["authorization"] == f"Bearer {fake.key}"
    assert asked.headers["content-type"] == "application/json"


async def test_the_bytes_of_a_request_stay_as_they_are(fake: FakeModel) -> None:
    """Prompt caches compare them, and signatures of thinking cover them, also where a fleet is being upgraded."""
    prompt = prompt_of("Say ü", max_output_tokens=77, allow_tools=False, cached_for_an_hour=True)
    await reply_of(model_of(fake), prompt)
    assert fake.journal[0].raw.decode() == (
        '{"model":"claude-sonnet-5-5","stream":true,"thinking":{"type":"adaptive","display":"summarized"},'
        '"cache_control":{"type":"ephemeral","ttl":"1h"},"system":"You are a worker.",'
        '"tools":[{"name":"read_file","description":"Reads a file.","input_schema":{"type":"object","properties":'
        '{"path":{"type":"string"}}}}],"max_tokens":77,"tool_choice":{"type":"none"},'
        '"messages":[{"role":"user","content":[{"type":"text","text":"Say ü"}]}]}'
    )


async def test_forbidding_tools_leaves_the_prefix_as_it_was(fake: FakeModel) -> None:
    model, prompt = model_of(fake), prompt_of("hello")
    await reply_of(model, prompt)
    await reply_of(model, Prompt(prompt.system, prompt.tools, prompt.messages, 1000, allow_tools=False))
    first, second = fake.journal
    assert second.body == {**first.body, "tool_choice": {"type": "none"}}


async def test_without_tools_none_are_named_and_none_forbidden(fake: FakeModel) -> None:
    await reply_of(model_of(fake), prompt_of("hello", tools=(), system="", allow_tools=False))
    assert fake.journal[0].body.keys() & {"tools", "tool_choice", "system"} == set()


async def test_thinking_is_asked_for_only_where_it_is_known(fake: FakeModel) -> None:
    await reply_of(model_of(fake, name="some-other-model"), "hello")
    assert "thinking" not in fake.journal[0].body


async def test_half_a_character_in_a_description_is_replaced(fake: FakeModel) -> None:
    tool = ToolSpec("read_file", "Reads half a character: \ud83d", {"type": "object", "description": "\udcff"})
    await reply_of(model_of(fake), prompt_of("hello", tools=(tool,), system="\ud83d"))
    assert fake.journal[0].body["tools"][0]["description"] == "Reads half a character: ?"


async def test_a_run_never_gets_the_prefix_of_another(fake: FakeModel) -> None:
    """Prefixes are found by the identity of the tools, and identities are given again after their death."""
    model = model_of(fake)
    for number in range(50):
        tools = (ToolSpec("tool", "", {"type": "object", "description": f"of run {number}"}),)
        await reply_of(model, prompt_of("hello", tools=tools, system="the same"))
        del tools
        gc.collect(0)
    sent = [asked.body["tools"][0]["input_schema"]["description"] for asked in fake.journal]
    assert sent == [f"of run {number}" for number in range(50)]


class Parameters(dict[str, Any]):
    """The parameters of a tool, which count how often they are encoded."""

    encoded = 0

    def items(self) -> Any:
        self.encoded += 1
        return super().items()


@pytest.mark.parametrize("style", [lambda model: model, XmlCalls], ids=["native", "xml"])
async def test_what_many_runs_declare_is_encoded_for_the_first_one_only(
    fake: FakeModel, style: Callable[[AnthropicModel], Model]
) -> None:
    parameters = Parameters(path={"type": "string"})
    tools = (ToolSpec("tool", "", {"type": "object", "properties": parameters}),)
    counts: list[int] = []
    for task in ("one", "two", "three"):
        model = style(model_of(fake))  # each run has a model of its own in this style
        prompt = prompt_of(task, tools=tools, system="".join(("the", " same")))
        shared_prefixes("endpoint", model.name, prompt)
        await reply_of(model, prompt)
        counts.append(parameters.encoded)
    assert counts[0] > 0
    assert counts == [counts[0]] * 3
    first, *others = (asked.raw.partition(b'"messages"')[0] for asked in fake.journal)
    assert others == [first] * 2


async def test_headers_of_the_operator_are_sent(fake: FakeModel) -> None:
    variables = {
        "ANTHROPIC_AUTH_TOKEN": fake.key,
        "ANTHROPIC_BASE_URL": fake.url,
        "ANTHROPIC_CUSTOM_HEADERS": "X-Team: a",
    }
    credentials = Credentials({name: SecretStr(value) for name, value in variables.items()})
    model = AnthropicModel("m", credentials, IMPATIENT)
    await reply_of(model, "hello")
    assert fake.journal[0].headers["x-team"] == "a"


async def test_turns_of_one_run_share_a_connection(fake: FakeModel) -> None:
    model = model_of(fake)
    for _ in range(5):
        await reply_of(model, "hello")
    assert fake.connections == 1


async def test_many_streams_run_at_once_and_leave_nothing_open(fake: FakeModel) -> None:
    model = model_of(fake)
    await asyncio.gather(*(reply_of(model, "hello") for _ in range(150)))
    assert (len(fake.journal), fake.open, fake.aborted) == (150, 0, 0)
    assert fake.connections <= 150


def test_a_model_outlives_a_loop() -> None:
    async def ask(number: int) -> str:
        async with FakeModel([Turn([text(f"loop {number}")])], port=port) as fake:
            model = models.setdefault("m", model_of(fake))
            try:
                return (await reply_of(model, "hello")).text
            finally:
                await close_models()

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    models: dict[str, AnthropicModel] = {}
    assert [asyncio.run(ask(number)) for number in range(3)] == ["loop 0", "loop 1", "loop 2"]


# What comes back


@pytest.mark.requirement("S002-053")
async def test_text_is_there_before_the_reply_is_complete(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], faults=[stall(after=6)])])
    async with aclosing(model_of(fake).reply(prompt_of("hello"))) as stream:
        assert isinstance(await anext(stream), ReplyStarted)
        assert isinstance(await anext(stream), TextPart)


async def test_thinking_goes_back_exactly_as_it_came(fake: FakeModel) -> None:
    """The endpoint signs each thought with all that was before it, and refuses one that was moved or changed."""
    turns = [Turn([thinking("a thought"), call("read_file", path=str(n)), call("read_file", path="b")]) for n in (1, 2)]
    fake.script("", [*turns, Turn([text("done")])])
    model, history = model_of(fake), Conversation()
    history.ask("think hard")
    for _ in turns:
        reply = await reply_of(model, prompt_of(history.messages))
        history.add(reply)
        history.answer([(each, ToolResult("ünï")) for each in reply.calls])
    assert (await reply_of(model, prompt_of(history.messages))).text == "done"
    assert "signature" in history.messages[1].decode()


@pytest.mark.parametrize(
    "block",
    [
        {"type": "redacted_thinking", "data": "c2VjcmV0"},
        {"type": "something_new", "deep": {"er": [1, 2]}},
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "a"}},
    ],
)
async def test_blocks_of_other_kinds_are_kept_as_they_are(fake: FakeModel, block: dict[str, Any]) -> None:
    fake.script("", [Turn([block, text("x")])])
    reply = await reply_of(model_of(fake), "hello")
    assert reply.content == [block, text("x")]
    assert reply.calls == []


async def test_empty_texts_are_left_out_because_the_api_refuses_them(fake: FakeModel) -> None:
    fake.script("", [Turn([text(""), text("x")])])
    assert (await reply_of(model_of(fake), "hello")).content == [text("x")]


DEEP = '{"a":' * 70 + "1" + "}" * 70
BOTTOMLESS = '{"a":' * 100_000


@pytest.mark.requirement("P-10")
@pytest.mark.parametrize(
    "raw", ['{"path": "a', "[1, 2]", '"text"', "{'path': 1}", '{"path": NaN}', '{"path": 1e999}', DEEP, BOTTOMLESS]
)
async def test_arguments_that_are_no_json_object_are_a_problem_of_the_call(fake: FakeModel, raw: str) -> None:
    fake.script("", [Turn([{**call("read_file"), "raw": raw}, call("read_file", path="b")])])
    reply = await reply_of(model_of(fake), "hello")
    bad, good = reply.calls
    assert bad.problem is not None
    assert raw[:200] in bad.problem
    assert bad.arguments == {} == reply.content[0]["input"]
    assert good == Call(good.id, "read_file", {"path": "b"})


async def test_a_call_without_arguments_has_none(fake: FakeModel) -> None:
    fake.script("", [Turn([{**call("read_file"), "raw": ""}])])
    (made,) = (await reply_of(model_of(fake), "hello")).calls
    assert made == Call(made.id, "read_file", {})


async def test_long_arguments_come_together_from_many_pieces(fake: FakeModel) -> None:
    words = "wörd " * 20_000
    fake.script("", [Turn([call("write_file", content=words)], pieces=3000)])
    (made,) = (await reply_of(model_of(fake), "hello")).calls
    assert made.arguments == {"content": words}


@pytest.mark.parametrize("stop", ["max_tokens", "length", "model_context_window_exceeded"])
async def test_calls_of_a_reply_that_was_cut_are_not_executed(fake: FakeModel, stop: str) -> None:
    fake.script("", [Turn([call("read_file", path="a")], stop=stop)])
    reply = await reply_of(model_of(fake), "hello")
    assert reply.stop_reason == stop
    assert reply.calls[0].problem is not None


@pytest.mark.parametrize("stop", ["end_turn", "stop_sequence", "pause_turn", "refusal", "a_reason_of_the_future"])
async def test_stop_reasons_are_passed_on(fake: FakeModel, stop: str) -> None:
    fake.script("", [Turn([text("x")], stop=stop)])
    assert (await reply_of(model_of(fake), "hello")).stop_reason == stop


async def test_usage_counts_the_cache_and_costs_by_the_table(fake: FakeModel) -> None:
    used = {"input_tokens": 10, "cache_creation_input_tokens": 1000, "cache_read_input_tokens": 50_000}
    fake.script("", [Turn([text("x")], usage={**used, "output_tokens": 200})])
    reply = await reply_of(model_of(fake), "hello")
    assert reply.usage.model_copy(update={"cost_usd": 0, "cache_saved_usd": 0}) == Usage(
        input_tokens=10, output_tokens=200, cache_read_tokens=50_000, cache_write_tokens=1000, cost_usd=0
    )
    assert reply.usage.cost_usd == pytest.approx((10 * 2 + 200 * 10 + 50_000 * 0.1 + 1000 * 2.5) / 1e6)
    assert reply.usage.cache_saved_usd == pytest.approx((50_000 * 1.9 - 1000 * 0.5) / 1e6)


async def test_the_cost_of_an_unknown_model_is_unknown(fake: FakeModel) -> None:
    model = model_of(fake, name="some-other-model")
    assert model.price() is None
    assert (await reply_of(model, "hello")).usage.cost_usd is None
