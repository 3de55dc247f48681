"""`deputize doctor --model`: what an endpoint is able to do is found by asking it, and what it lacks becomes a flag."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from deputize.shared.promises import Finding
from deputize.shared.settings import Settings
from deputize.worker.promises.endpoint_probe import try_model
from tests.fake_model import FakeModel, PromptCache, Turn, call, refuse, text
from tests.fake_model.server import Asked

WHOLE = {
    "Call get_weather for it": [call("get_weather", city="Paris")],
    "for both of them": [call("get_weather", city="Paris"), call("get_weather", city="Rome")],
    "twenty lines": [call("write_note", text="one\n" * 20)],
    "Say hello": [call("write_note", text="hello")],
}
NAMES = ["model", "tool call", "parallel", "arguments", "usage", "cache", "thinking", "choice", "bad field", "table"]


@pytest.fixture
async def house() -> AsyncIterator[FakeModel]:
    async with FakeModel(cache=PromptCache(), turns=[Turn([text("Yes.")])]) as fake:
        for words, blocks in WHOLE.items():
            fake.script(words, [Turn(blocks)])
        yield fake


async def found(fake: FakeModel, **table: Any) -> dict[str, Finding]:
    given = {"model": "claude-sonnet-5-5", "base_url": fake.url, "key": "HOUSE_KEY", **table}
    settings = Settings.load(environ={"HOUSE_KEY": fake.key}, models={"house": given}, model_retry_seconds=0)
    rows = await try_model(settings, "house")
    assert not any(fake.key in row.detail + row.remedy for row in rows)
    return {row.name: row for row in rows}


def states(rows: dict[str, Finding], names: Sequence[str]) -> dict[str, str]:
    return {name: rows[name].state for name in names}


async def test_an_endpoint_that_has_it_all_needs_no_flags(house: FakeModel) -> None:
    rows = await found(house)
    assert [*rows] == NAMES
    assert {name: (row.state, row.detail) for name, row in rows.items() if row.state != "✓"} == {}
    assert rows["arguments"].detail.endswith("in 4 pieces, and valid")
    assert rows["bad field"].detail == "refused: not_a_field: Extra inputs are not permitted"
    assert rows["table"].detail == "no flags are needed"
    assert len(house.journal) == 8


async def test_each_of_several_keys_is_tried() -> None:
    def wrong(asked: Asked) -> str | None:
        return "invalid key" if asked.key == "sk-wrong" else None

    async with FakeModel(refuses=wrong) as house:
        for words, blocks in WHOLE.items():
            house.script(words, [Turn(blocks)])
        keys = {"ONE_KEY": "sk-one", "WRONG_KEY": "sk-wrong", "TWO_KEY": "sk-two"}
        table = {"platform": house.url, "model": "m", "keys": [*keys]}
        settings = Settings.load(environ=keys, models={"house": table}, model_retry_seconds=0)
        rows = {row.name: row for row in await try_model(settings, "house")}
    assert states(rows, ["tool call", "key 2", "key 3"]) == {"tool call": "✓", "key 2": "✗", "key 3": "✓"}
    assert "invalid key" in rows["key 2"].detail


async def test_what_an_endpoint_lacks_is_what_its_table_is_to_state(house: FakeModel) -> None:
    house.lacks = ("cache_control", "thinking")
    rows = await found(house)
    lacking = ("cache", "thinking", "table")
    assert states(rows, lacking) == dict.fromkeys(lacking, "!")
    flags = 'lacks = ["cache_control", "thinking"]'
    assert rows["table"].remedy == f"set {flags} in it"
    assert (await found(house, lacks=[*house.lacks]))["table"].state == "✓"
    house.lacks = ()
    assert (await found(house, lacks=["effort", "thinking"]))["table"].remedy == "set lacks = [] in it"


async def test_an_endpoint_without_a_cache_lacks_cache_control_though_it_accepts_it(house: FakeModel) -> None:
    house.cache = None
    rows = await found(house)
    assert rows["cache"].state == "!"
    assert rows["table"].remedy == 'set lacks = ["cache_control"] in it'


def raw(*events: dict[str, Any]) -> Turn:
    end = [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}, {"type": "message_stop"}]
    return Turn(raw=[{"type": "message_start", "message": {"id": "m", "usage": {}}}, *events, *end])


def begun(index: int, id: str) -> dict[str, Any]:
    block = {"type": "tool_use", "id": id, "name": "get_weather", "input": {"city": str(index)}}
    return {"type": "content_block_start", "index": index, "content_block": block}


@pytest.mark.parametrize(
    ("words", "turn", "name", "state", "detail"),
    [
        ("Call get_weather for it", raw(begun(0, "1")), "usage", "!", "no input_tokens and no output_tokens"),
        ("for both of them", raw(begun(0, "1"), begun(1, "1")), "parallel", "!", "ids that are equal or empty"),
        ("for both of them", Turn([call("get_weather", city="x")]), "parallel", "!", "one call per reply"),
        ("twenty lines", Turn([call("write_note") | {"raw": '{"text": "one'}]), "arguments", "✗", "not valid JSON"),
        ("Say hello", Turn([text("Hello.")]), "choice", "!", "ignored"),
        ("Say hello", Turn([text("x")], faults=[refuse(400)]), "choice", "!", "refused"),
        ("Say hello", Turn([text("x")], faults=[refuse(529)]), "choice", "!", "refused"),
    ],
)
async def test_what_is_odd_is_named(
    house: FakeModel, words: str, turn: Turn, name: str, state: str, detail: str
) -> None:
    house.script(words, [turn])
    row = (await found(house))[name]
    assert row.state == state
    assert detail in row.detail


@pytest.mark.parametrize(
    ("turn", "detail"),
    [
        (Turn([text("<tool_call>get_weather(Paris)</tool_call>")]), "the reply has none, but the text '<tool_call>"),
        (Turn([text("x")], faults=[refuse(404)]), "Check model of [models.house] (claude-sonnet-5-5)"),
    ],
)
async def test_without_a_tool_call_the_model_cannot_be_used(house: FakeModel, turn: Turn, detail: str) -> None:
    house.script("Call get_weather for it", [turn])
    row = (await found(house))["tool call"]
    assert (row.state, detail in row.detail) == ("✗", True)


async def test_an_endpoint_that_cannot_be_used_is_one_row(house: FakeModel) -> None:
    house.key = "another"
    settings = Settings.load(environ={"K": "wrong"}, models={"house": {"base_url": house.url, "key": "K"}})
    rows = await try_model(settings, "house")
    assert [(row.state, row.name) for row in rows] == [("✓", "model"), ("✗", "tool call")]
    assert "Check key of [models.house]" in rows[1].detail
    assert len(house.journal) == 1


async def test_a_script_has_no_endpoint() -> None:
    rows = await try_model(Settings.load(environ={}), "scripted")
    assert [(row.state, row.name) for row in rows] == [("✓", "model")]
