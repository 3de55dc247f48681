"""Models by tables of the settings: two endpoints at once, what each is asked for, and whose key goes where."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import Misconfigured, ModelUnavailable
from deputize.shared.events import ProgressMade, RunStarted
from deputize.shared.settings import Settings
from deputize.worker.core.conversation import Conversation
from deputize.worker.models import close_models, open_model
from deputize.worker.models.base import Price
from tests.fake_model import FakeModel, Turn, call, refuse, text
from tests.runs.bench import open_bench
from tests.worker.models.asking import READ, prompt_of, reply_of

HOUSE_KEY = "gw-key-of-the-house-0123456789"


@pytest.fixture
async def house() -> AsyncIterator[FakeModel]:
    async with FakeModel(key=HOUSE_KEY, turns=[Turn([text("From the house.")])]) as fake:
        yield fake
        await close_models()


def settings_of(table: dict[str, Any], fake: FakeModel | None = None, **more: Any) -> Settings:
    environ = {"HOUSE_KEY": HOUSE_KEY, **(fake.variables if fake else {})}
    return Settings.load(environ=environ, models={"house": table}, **more)


async def test_two_models_of_two_endpoints_work_at_once(
    redis_url: str, tmp_path: Path, fake: FakeModel, house: FakeModel
) -> None:
    fake.script("", [Turn([call("glob", pattern="*")]), Turn([text("From the one.")])])
    house.script("", [Turn([call("glob", pattern="*")]), Turn([text("From the house.")])])
    table = {
        "platform": house.url,
        "key": "HOUSE_KEY",
        "model": "qwen3-coder",
        "max_output": 5000,
        "price": {"input": 100, "output": 100},
    }
    chosen = settings_of(table, fake)
    given = {"model_endpoint": chosen.model_endpoint, "models": chosen.models}
    async with open_bench(redis_url, tmp_path / "home", **given) as bench:
        named, usual = await asyncio.gather(bench.run(model="house"), bench.run())
        events = [event.to_json() for run in (named, usual) for event in await bench.events(run)]
        started = await bench.seen(named, RunStarted)
    assert (named.summary, usual.summary) == ("From the house.", "From the one.")
    assert started[0].model == "qwen3-coder"
    asked = {each.body["model"]: each for each in (*house.journal, *fake.journal)}
    assert {name: each.key for name, each in asked.items()} == {
        "qwen3-coder": HOUSE_KEY,
        "claude-sonnet-5-5": fake.key,
    }
    assert {each.body["max_tokens"] for each in house.journal} == {5000}
    assert {each.body["max_tokens"] for each in fake.journal} == {16_000}
    assert (named.usage.cost_usd or 0) == pytest.approx(named.usage.total * 100 / 1_000_000)
    assert HOUSE_KEY not in "".join(events)


async def test_the_configured_model_may_be_a_table(redis_url: str, tmp_path: Path, house: FakeModel) -> None:
    chosen = settings_of({"base_url": house.url, "key": "HOUSE_KEY"})
    given = {"model_endpoint": chosen.model_endpoint, "models": chosen.models, "model": "house"}
    async with open_bench(redis_url, tmp_path / "home", **given) as bench:
        result = await bench.run()
    assert result.summary == "From the house."
    assert result.usage.cost_usd is None  # the price of this model is not known
    assert house.journal[0].body["model"] == "house"


@pytest.mark.parametrize(("lacks", "waits"), [([], True), (["cache_control"], False)])
async def test_runs_wait_for_a_shared_prefix_only_where_there_is_a_cache(
    redis_url: str, tmp_path: Path, house: FakeModel, lacks: list[str], waits: bool
) -> None:
    chosen = settings_of({"base_url": house.url, "key": "HOUSE_KEY", "lacks": lacks})
    given = {"model_endpoint": chosen.model_endpoint, "models": chosen.models, "model": "house"}
    async with open_bench(redis_url, tmp_path / "home", **given) as bench:
        await bench.run(context="The same for all. " * 1000)
        assert bool(await bench.store.redis.keys("deputize:prefix:*")) is waits


async def test_an_endpoint_is_not_asked_for_what_it_lacks(house: FakeModel) -> None:
    house.lacks = ("cache_control", "thinking")
    table = {"base_url": house.url, "key": "HOUSE_KEY", "model": "claude-sonnet-5-5"}
    lacking = open_model("house", settings_of(table | {"lacks": [*house.lacks]}))
    history = Conversation(task=("For all of them. " * 1000, "For this one."))
    prompt = prompt_of(history.messages, system="You are a worker. " * 500, shared_end=history.shared_end)
    assert (await reply_of(lacking, prompt)).text == "From the house."
    assert house.journal[0].body.keys() == {"model", "stream", "system", "tools", "max_tokens", "messages"}
    house.lacks = ()
    await reply_of(open_model("house", settings_of(table)), prompt)
    assert {"thinking", "cache_control"} <= house.journal[1].body.keys()
    assert house.journal[1].raw.count(b"cache_control") == 3


async def test_a_conversation_is_shortened_by_the_window_of_its_table(
    redis_url: str, tmp_path: Path, house: FakeModel
) -> None:
    house.script("", [Turn([call("glob", pattern="*")]), Turn([text("From the house.")])])
    chosen = settings_of({"base_url": house.url, "key": "HOUSE_KEY", "context_window": 1000})
    given = {"model_endpoint": chosen.model_endpoint, "models": chosen.models, "context_tokens": 1_000_000}
    async with open_bench(redis_url, tmp_path / "home", **given) as bench:
        result = await bench.run(model="house")
        progress = await bench.seen(result, ProgressMade)
    assert any("became a summary" in event.message for event in progress)


async def test_no_credentials_of_another_endpoint_are_sent(house: FakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table without a key has none: neither that of ``ANTHROPIC_…``, nor what the SDK would find."""
    house.refuses = lambda asked: "a credential" if asked.key or "x-secret" in asked.headers else None
    others = {"ANTHROPIC_AUTH_TOKEN": "of-another", "ANTHROPIC_CUSTOM_HEADERS": "x-secret: of another"}
    for name, value in others.items():
        monkeypatch.setenv(name, value)
    settings = Settings.load(environ=others, models={"house": {"base_url": house.url}})
    assert (await reply_of(open_model("house", settings), "hello")).text == "From the house."


def test_the_price_and_the_window_of_a_table_count_for_its_model_only() -> None:
    price = {"input": 1, "output": 2}
    own = {"model": "m", "base_url": "http://h", "price": price}
    settings = settings_of(own, prices={"m": {"input": 9, "output": 9}})
    assert open_model("house", settings).price() == Price(1, 2, 1, 1)
    assert open_model("m", settings).price() == Price(9, 9, 9, 9)
    bedrock = settings_of({"platform": "bedrock", "key": "HOUSE_KEY", "model": "eu.anthropic.claude-opus-5-5-v1:0"})
    assert open_model("house", bedrock).window() == 1_000_000
    assert open_model("house", bedrock).price() is None


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "Check key of [models.house] and that it belongs to the URL of [models.house]."),
        (404, "Check model of [models.house] (m) and the URL of [models.house]: one of them does not exist there."),
        (400, "check model of [models.house] (m), or max_output of [models.house] for the length of replies."),
    ],
)
async def test_an_error_names_the_table_and_no_key(house: FakeModel, status: int, advice: str) -> None:
    error = {"message": f"the key {HOUSE_KEY} is odd"}
    house.script("", [Turn([text("x")], faults=[refuse(status, error=error)])])
    model = open_model("house", settings_of({"base_url": house.url, "key": "HOUSE_KEY", "model": "m"}))
    with pytest.raises(Exception, match="cannot be used") as raised:
        await reply_of(model, "hello")
    assert advice in str(raised.value)
    assert HOUSE_KEY not in str(raised.value)


def test_a_key_that_is_missing_is_named_with_its_table() -> None:
    settings = Settings.load(environ={}, models={"house": {"base_url": "http://h", "key": "HOUSE_KEY"}})
    with pytest.raises(Misconfigured, match=r"^\[models\.house\]: key names the variable HOUSE_KEY, which is not set"):
        open_model("house", settings)


async def test_a_name_that_is_no_table_is_distinguished_from_those_that_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings = Settings.load(environ={}, models={"house": {"base_url": "http://h"}})
    with pytest.raises(ModelUnavailable, match="'hose' is none of the tables of models: house"):
        await reply_of(open_model("hose", settings), "hello")
    await close_models()


async def test_tables_of_one_endpoint_share_its_connections(house: FakeModel) -> None:
    table = {"base_url": house.url, "key": "HOUSE_KEY"}
    settings = Settings.load(environ={"HOUSE_KEY": HOUSE_KEY}, models={"a": table, "b": table | {"model": "m"}})
    models = [open_model(name, settings) for name in ("a", "b")]
    for model in models:
        await reply_of(model, prompt_of("hello", (READ,)))
    assert house.connections == 1
    assert models[0].endpoint_id != models[1].endpoint_id
    assert [each.body["model"] for each in house.journal] == ["a", "m"]
    assert json.dumps([model.endpoint_id for model in models]).find(HOUSE_KEY) == -1
