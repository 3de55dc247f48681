"""One model with several keys: requests with one prefix keep to one key while that has capacity."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import Misconfigured
from deputize.shared.runs.capacity import capacities
from deputize.shared.settings import Settings
from deputize.worker.fleet.admission.keys import KeyedModel
from deputize.worker.models.anthropic import AnthropicModel
from deputize.worker.models.base import Prompt
from deputize.worker.models.retry import SPEND_LIMIT_CODE
from tests.fake_model import FakeModel, Turn, call, refuse, text
from tests.runs.bench import Bench, open_bench

KEYS = {"FIRST_KEY": "sk-first", "SECOND_KEY": "sk-second", "THIRD_KEY": "sk-third"}
SPENT = refuse(429, error={"details": {"error_code": SPEND_LIMIT_CODE}})


@dataclass
class Loads:
    """How many calls wait for each key."""

    of: dict[str, float] = field(default_factory=dict[str, float])

    def __call__(self, endpoint: str) -> float:
        return self.of.get(endpoint, 0)


def settings_of(url: str = "http://localhost:1", keys: Mapping[str, str] = KEYS) -> Settings:
    table = {"platform": url, "model": "claude-sonnet-5-5", "keys": list(keys)}
    return Settings.load(environ=dict(keys), models={"house": table}, model="house")


def prompt_of(context: str) -> Prompt:
    message = json.dumps({"role": "user", "content": [{"type": "text", "text": context}]}).encode()
    return Prompt("system " * 2000, (), [message], 100, shared_end=len(message) - 3)


def models_of(keys: Mapping[str, str] = KEYS) -> list[AnthropicModel]:
    return list(AnthropicModel.open("house", settings_of(keys=keys)).of_keys)


async def test_requests_with_one_prefix_begin_with_one_key_and_other_prefixes_spread() -> None:
    def chosen(context: str) -> str:
        model = KeyedModel(models_of(), Loads())
        model.choose(prompt_of(context))
        return model.endpoint_id

    assert len({chosen("the same") for _ in range(5)}) == 1
    assert len({chosen(f"context {number}") for number in range(40)}) == 3


async def test_a_run_takes_another_key_where_its_own_has_no_capacity_and_keeps_to_that() -> None:
    loads = Loads()
    model, prompt = KeyedModel(models_of(), loads), prompt_of("context")
    model.choose(prompt)
    first = model.endpoint_id
    loads.of = {each.endpoint_id: 8 for each in model.models}
    model.choose(prompt)
    assert model.endpoint_id == first  # no other one is better
    loads.of[next(each.endpoint_id for each in model.models if each.endpoint_id != first)] = 0
    model.choose(prompt)
    second = model.endpoint_id
    assert second != first
    loads.of = {}
    model.choose(prompt)
    assert model.endpoint_id == second  # where its conversation is cached


async def test_a_key_that_may_spend_no_more_is_not_taken() -> None:
    loads = Loads()
    model = KeyedModel(models_of(), loads)
    model.choose(prompt_of("context"))
    loads.of = {model.endpoint_id: math.inf}
    model.choose(prompt_of("context"))
    assert model.endpoint_id not in loads.of
    assert model.takes_requests
    loads.of = {each.endpoint_id: math.inf for each in model.models}
    assert not model.takes_requests


async def test_the_batches_of_a_run_tree_have_one_key_in_each_process() -> None:
    trees = [f"dlg_{number}" for number in range(50)]
    keys = {tree: KeyedModel(models_of(), Loads()).belonging_to(tree).endpoint_id for tree in trees}
    fewer = KeyedModel(models_of({name: KEYS[name] for name in list(KEYS)[:2]}), Loads())
    assert len({*keys.values()}) == 3
    kept = {each.endpoint_id for each in fewer.models}
    assert all(fewer.belonging_to(tree).endpoint_id == key for tree, key in keys.items() if key in kept)


async def opened(redis_url: str, home: Path, model: FakeModel) -> Any:
    chosen = settings_of(model.url)
    return open_bench(redis_url, home, model_endpoint=chosen.model_endpoint, models=chosen.models, model="house")


async def test_all_turns_of_runs_with_one_prefix_have_one_key(redis_url: str, tmp_path: Path) -> None:
    async with FakeModel(refuses=lambda _: None) as model, await opened(redis_url, tmp_path / "home", model) as bench:
        model.script("", [Turn([call("glob", pattern="*")]), Turn([text("done")])])
        results = [await bench.run(context="the same " * 2000) for _ in range(2)]
        assert [result.status for result in results] == ["succeeded"] * 2
        assert len(model.journal) == 4
        assert len({asked.key for asked in model.journal}) == 1


async def test_a_run_goes_on_with_another_key_where_one_is_at_its_spend_limit(redis_url: str, tmp_path: Path) -> None:
    async with FakeModel(refuses=lambda _: None) as model, await opened(redis_url, tmp_path / "home", model) as bench:
        model.script("", [Turn([text("done")], faults=[SPENT])])
        first = await bench.run()
        assert (first.status, first.summary) == ("succeeded", "done")
        refused, answered = (asked.key for asked in model.journal)
        assert {refused, answered} < {*KEYS.values()}
        model.script("", [Turn([text("done")])])
        assert (await _again(bench)).status == "succeeded"
        assert refused not in [asked.key for asked in model.journal[1:]]
        (shown,) = await capacities(bench.store.redis)
        assert (shown.model, shown.key, shown.spent) == ("claude-sonnet-5-5", [*KEYS.values()].index(refused) + 1, True)
        assert not any(key in shown.to_json() for key in KEYS.values())


async def _again(bench: Bench) -> Any:
    results = [await bench.run() for _ in range(3)]
    return results[-1]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"keys": ["FIRST_KEY", "FIRST_KEY"]}, "names one place twice"),
        ({"keys": ["FIRST_KEY"], "key": "SECOND_KEY"}, "key and keys are both set"),
        ({"keys": ["sk-ant-secret"]}, "the key itself does not belong here"),
        ({"keys": ["FIRST_KEY", "SECOND_KEY"], "platform": "google-cloud"}, "google-cloud has no key"),
    ],
)
def test_wrong_keys_are_refused_with_the_reason(table: dict[str, Any], words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        Settings.load(environ={}, models={"house": table})


def test_a_key_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-first\n")
    table = {"platform": "http://localhost:1", "keys": [str(tmp_path / "key"), "SECOND_KEY"]}
    settings = Settings.load(environ={}, models={"house": table})
    with pytest.raises(Misconfigured, match=r"\[models.house\]: key names the variable SECOND_KEY, which is not set"):
        AnthropicModel.open("house", settings)
    assert "sk-first" in settings.secrets
