"""The adapter for the Messages API, against an endpoint that is strict and goes wrong in every way."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from shared.delegation import Usage
from shared.errors import ModelUnavailable
from tests.fake_model import (
    FakeModel,
    Fault,
    Turn,
    bad_json,
    call,
    cut,
    overload,
    refuse,
    reset,
    stall,
    text,
    thinking,
)
from tests.waiting import until
from tests.worker.models.asking import IMPATIENT, READ, model_of, parts_of, prompt_of, reply_of
from worker.history import History
from worker.models import close_models
from worker.models.anthropic import AnthropicModel
from worker.models.base import Call, Part, Prompt, Reply, Retrying, TextPart, ThinkingPart, ToolSpec
from worker.models.retry import Patience
from worker.tools.base import ToolResult

MANY = "words " * 200


def retries(parts: Sequence[Part]) -> list[Retrying]:
    return [part for part in parts if isinstance(part, Retrying)]


# What is sent


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


async def test_a_run_never_gets_the_prefix_of_another(fake: FakeModel) -> None:
    """Prefixes are found by the identity of their objects, and identities are given again after their death."""
    model = model_of(fake)
    for number in range(50):
        tools = (ToolSpec(f"tool_{number}", "", {"type": "object"}),)
        await reply_of(model, prompt_of("hello", tools=tools, system=f"run {number}"))
        del tools
        gc.collect(0)
    sent = [(asked.body["system"], asked.body["tools"][0]["name"]) for asked in fake.journal]
    assert sent == [(f"run {number}", f"tool_{number}") for number in range(50)]


async def test_headers_of_the_operator_are_sent(fake: FakeModel) -> None:
    variables = {
        "ANTHROPIC_AUTH_TOKEN": fake.key,
        "ANTHROPIC_BASE_URL": fake.url,
        "ANTHROPIC_CUSTOM_HEADERS": "X-Team: a",
    }
    model = AnthropicModel("m", {name: SecretStr(value) for name, value in variables.items()}, IMPATIENT)
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


async def test_a_proxy_is_used_where_the_environment_names_one(
    fake: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", fake.url)
    endpoint = {"ANTHROPIC_API_KEY": SecretStr(fake.key), "ANTHROPIC_BASE_URL": SecretStr("http://model.invalid")}
    await reply_of(AnthropicModel("m", endpoint, IMPATIENT), "hello")
    assert fake.journal[0].headers["host"] == "model.invalid"


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


async def test_deltas_come_in_order_and_one_reply_last(fake: FakeModel) -> None:
    fake.script("", [Turn([thinking("First I think."), text("Then I talk."), call("read_file", path="a.txt")])])
    *deltas, reply = await parts_of(model_of(fake), "hello")
    assert isinstance(reply, Reply)
    kinds = [type(part) for part in deltas]
    assert kinds == sorted(kinds, key=[ThinkingPart, TextPart].index)
    assert "".join(part.text for part in deltas if isinstance(part, ThinkingPart)) == reply.thinking == "First I think."
    assert "".join(part.text for part in deltas if isinstance(part, TextPart)) == reply.text == "Then I talk."
    assert reply.calls == [Call(reply.content[2]["id"], "read_file", {"path": "a.txt"})]
    assert reply.stop_reason == "tool_use"


@pytest.mark.requirement("S002-053")
async def test_text_is_there_before_the_reply_is_complete(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], faults=[stall(after=6)])])
    async with aclosing(model_of(fake).reply(prompt_of("hello"))) as stream:
        assert isinstance(await anext(stream), TextPart)


async def test_thinking_goes_back_exactly_as_it_came(fake: FakeModel) -> None:
    """The endpoint signs each thought with all that was before it, and refuses one that was moved or changed."""
    turns = [Turn([thinking("a thought"), call("read_file", path=str(n)), call("read_file", path="b")]) for n in (1, 2)]
    fake.script("", [*turns, Turn([text("done")])])
    model, history = model_of(fake), History()
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


@pytest.mark.requirement("P-10")
@pytest.mark.parametrize("raw", ['{"path": "a', "[1, 2]", '"text"', "{'path': 1}"])
async def test_arguments_that_are_no_json_object_are_a_problem_of_the_call(fake: FakeModel, raw: str) -> None:
    fake.script("", [Turn([{**call("read_file"), "raw": raw}, call("read_file", path="b")])])
    reply = await reply_of(model_of(fake), "hello")
    bad, good = reply.calls
    assert bad.problem is not None
    assert raw in bad.problem
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


@pytest.mark.parametrize("stop", ["max_tokens", "model_context_window_exceeded"])
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
    assert reply.usage.model_copy(update={"cost_usd": 0}) == Usage(
        input_tokens=10, output_tokens=200, cache_read_tokens=50_000, cache_write_tokens=1000
    )
    assert reply.usage.cost_usd == pytest.approx((10 * 2 + 200 * 10 + 50_000 * 0.1 + 1000 * 2.5) / 1e6)


async def test_the_cost_of_an_unknown_model_is_unknown(fake: FakeModel) -> None:
    model = model_of(fake, name="some-other-model")
    assert model.price() is None
    assert (await reply_of(model, "hello")).usage.cost_usd is None


# What goes wrong and passes

PASSING = [
    *(refuse(status, retry_after_ms="1") for status in (408, 409, 429, 500, 502, 503, 504, 529)),
    refuse(529),
    refuse(400, x_should_retry="true"),
    overload(),
    overload(after=0),
    cut(),
    cut(after=0),
    cut(after=99),
    reset(),
    bad_json(),
]


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: f"{fault.kind}-{fault.status}-{fault.after}")
async def test_a_passing_failure_is_said_and_tried_again(fake: FakeModel, fault: Fault) -> None:
    fake.script("", [Turn([text(MANY)], faults=[fault, fault])])
    parts = await parts_of(model_of(fake), "hello")
    assert len(retries(parts)) == 2
    at = parts.index(retries(parts)[-1])
    assert "".join(part.text for part in parts[at + 1 : -1] if isinstance(part, TextPart)) == MANY
    assert isinstance(parts[-1], Reply)
    assert parts[-1].text == MANY
    assert [asked.outcome for asked in fake.journal][-1] == "answered"


async def test_a_stream_that_stalls_is_left_and_asked_for_again(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], faults=[stall()])])
    parts = await parts_of(model_of(fake, Patience(first_delay=0.001, read_timeout=0.05)), "hello")
    (retry,) = retries(parts)
    assert "stalled" in retry.error
    assert isinstance(parts[-1], Reply)
    await until(lambda: fake.aborted == 1)


async def test_an_endpoint_that_answers_nothing_at_all_is_a_stall_too(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], delay=30)])
    with pytest.raises(ModelUnavailable, match="stalled"):
        await parts_of(model_of(fake, Patience(tries=2, first_delay=0.001, read_timeout=0.05)), "hello")
    await until(lambda: fake.aborted == 2)


async def test_what_a_failed_try_cost_is_said(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], usage={"input_tokens": 1000}, faults=[overload(), refuse(529)])])
    streamed, refused = retries(await parts_of(model_of(fake), "hello"))
    assert streamed.wasted == Usage(input_tokens=1000, output_tokens=1, cost_usd=0.00201)
    assert refused.wasted == Usage()


@pytest.mark.parametrize(
    ("headers", "shortest", "longest"),
    [
        ({"retry_after_ms": "20"}, 0.02, 0.022),
        ({"retry_after": "0.03"}, 0.03, 0.033),
        ({"retry_after": "1000"}, 0.05, 0.055),
        ({"retry_after": "Fri, 31 Dec 2100 23:59:59 GMT"}, 0.05, 0.055),
        ({"retry_after": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0, 0),
        ({"retry_after": "soon"}, 0.0005, 0.001),
        ({}, 0.0005, 0.001),
    ],
)
async def test_the_endpoint_says_when_to_come_back(
    fake: FakeModel, headers: dict[str, str], shortest: float, longest: float
) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(429, **headers)])])
    (retry,) = retries(await parts_of(model_of(fake, Patience(first_delay=0.001, longest_wait=0.05)), "hello"))
    assert shortest <= retry.delay <= longest


def test_delays_grow_up_to_a_roof() -> None:
    patience = Patience(first_delay=1, longest_delay=4)
    delays = [[patience.delay(tries, None) for _ in range(50)] for tries in (1, 2, 3, 4, 5)]
    for roof, some in zip([1, 2, 4, 4, 4], delays, strict=True):
        assert all(roof / 2 <= delay <= roof for delay in some)
        assert len(set(some)) > 1


# What goes wrong for good


async def test_after_six_tries_the_url_is_named(fake: FakeModel) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(529)] * 9)])
    with pytest.raises(ModelUnavailable) as error:
        await parts_of(model_of(fake), "hello")
    assert len(fake.journal) == 6
    for words in (f"{fake.url}/v1/messages", "6 tries", "HTTP 529", "ANTHROPIC_BASE_URL"):
        assert words in str(error.value)


async def test_an_endpoint_that_is_down_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    endpoint = {"ANTHROPIC_API_KEY": SecretStr("sk-key-x"), "ANTHROPIC_BASE_URL": SecretStr(url)}
    model = AnthropicModel("m", endpoint, IMPATIENT)
    with pytest.raises(ModelUnavailable, match=f"after 6 tries; .*no connection to {url}"):
        await parts_of(model, "hello")
    await close_models()


SPENT = {"details": {"error_code": "enforced_spend_limit_reached"}}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (refuse(400), "DEPUTIZE_MODEL (claude-sonnet-5-5)"),
        (refuse(401), "ANTHROPIC_API_KEY"),
        (refuse(402), "console"),
        (refuse(403), "permissions"),
        (refuse(404), "ANTHROPIC_BASE_URL"),
        (refuse(413), "less context"),
        (refuse(418), "DEPUTIZE_MODEL"),
        (refuse(429, error=SPENT), "spend limit"),
        (refuse(429, error=SPENT, x_should_retry="true"), "spend limit"),
        (refuse(529, x_should_retry="false"), "HTTP 529"),
    ],
)
async def test_what_would_be_refused_again_is_not_asked_again(fake: FakeModel, fault: Fault, words: str) -> None:
    fake.script("", [Turn([text("x")], faults=[fault])])
    with pytest.raises(ModelUnavailable) as error:
        await parts_of(model_of(fake), "hello")
    assert words in str(error.value)
    assert len(fake.journal) == 1


async def test_a_wrong_key_is_never_repeated_in_the_message(fake: FakeModel) -> None:
    """This endpoint quotes the key it refuses."""
    endpoint = {"ANTHROPIC_API_KEY": SecretStr("sk-very-secret"), "ANTHROPIC_BASE_URL": SecretStr(fake.url)}
    with pytest.raises(ModelUnavailable) as error:
        await parts_of(AnthropicModel("m", endpoint, IMPATIENT), "hello")
    assert "sk-very-secret" not in str(error.value)
    assert "'***'" in str(error.value)


async def test_a_key_with_a_line_end_is_explained_without_quoting_it(fake: FakeModel) -> None:
    endpoint = {"ANTHROPIC_API_KEY": SecretStr("sk-very\nsecret"), "ANTHROPIC_BASE_URL": SecretStr(fake.url)}
    with pytest.raises(ModelUnavailable, match="line ends") as error:
        await parts_of(AnthropicModel("m", endpoint, IMPATIENT), "hello")
    assert "secret" not in str(error.value)


async def test_without_a_key_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(ModelUnavailable, match="Set ANTHROPIC_API_KEY"):
        await parts_of(AnthropicModel("m", {}, IMPATIENT), "hello")
    await close_models()


async def test_what_is_no_messages_api_is_told(fake: FakeModel) -> None:
    endpoint = {"ANTHROPIC_API_KEY": SecretStr(fake.key), "ANTHROPIC_BASE_URL": SecretStr(f"{fake.url}/fake")}
    with pytest.raises(ModelUnavailable, match="no Messages API"):
        await parts_of(AnthropicModel("m", endpoint, IMPATIENT), "hello")


@pytest.mark.parametrize("url", ["ftp://model.invalid", "http://", "not a url"])
async def test_a_url_that_cannot_be_used_is_told(url: str) -> None:
    endpoint = {"ANTHROPIC_API_KEY": SecretStr("sk-key-x"), "ANTHROPIC_BASE_URL": SecretStr(url)}
    with pytest.raises(ModelUnavailable):
        await parts_of(AnthropicModel("m", endpoint, IMPATIENT), "hello")
    await close_models()


async def test_a_conversation_the_api_refuses_says_why(fake: FakeModel) -> None:
    history = History()
    history.ask("hello")
    history.add(Reply([call("read_file", path="a")], "tool_use", Usage()))
    history.ask("no answer to the call")
    with pytest.raises(ModelUnavailable, match="tool_use ids without tool_result"):
        await parts_of(model_of(fake), prompt_of(history.messages))


# Who hangs up


@pytest.mark.requirement("P-15")
async def test_cancelling_the_reader_closes_the_stream_at_once(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], faults=[stall(after=6)])])
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in model_of(fake).reply(prompt_of("hello")):
            begun.set()

    reading = asyncio.create_task(read())
    await asyncio.wait_for(begun.wait(), 5)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await until(lambda: fake.aborted == 1)
    assert fake.open == 0


async def test_cancelling_before_the_answer_begins_closes_the_connection(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], delay=30)])
    reading = asyncio.create_task(parts_of(model_of(fake), "hello"))
    await until(lambda: fake.open == 1)
    reading.cancel()
    await until(lambda: fake.aborted == 1)
    assert reading.cancelled()


async def test_closing_the_iterator_closes_the_stream_at_once(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], faults=[stall(after=6)])])
    async with aclosing(model_of(fake).reply(prompt_of("hello"))) as stream:
        await anext(stream)
    await until(lambda: fake.aborted == 1)
    assert fake.open == 0


async def test_cancelling_while_waiting_for_the_next_try_asks_no_more(fake: FakeModel) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(529)])])
    waiting = asyncio.Event()

    async def read() -> None:
        async for part in model_of(fake, Patience(first_delay=60, longest_delay=60)).reply(prompt_of("hello")):
            assert isinstance(part, Retrying)
            waiting.set()

    reading = asyncio.create_task(read())
    await asyncio.wait_for(waiting.wait(), 5)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert len(fake.journal) == 1


async def test_after_a_cancelled_stream_the_next_one_works(fake: FakeModel) -> None:
    fake.script("stall", [Turn([text(MANY)], faults=[stall(after=6)])])
    model = model_of(fake)
    async with aclosing(model.reply(prompt_of("stall"))) as stream:
        await anext(stream)
    assert (await reply_of(model, "hello")).text == "Hello from the fake model."


async def test_a_script_can_travel_inside_the_prompt(fake: FakeModel) -> None:
    script = {"turns": [{"blocks": [text("told")], "faults": [{"kind": "refuse", "status": 529}]}]}
    parts = await parts_of(model_of(fake), f"Do it. FAKE: {json.dumps(script)} And well.")
    assert isinstance(parts[0], Retrying)
    assert isinstance(parts[-1], Reply)
    assert parts[-1].text == "told"
