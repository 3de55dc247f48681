"""Models that a request may not name: `scripted:FILE` opens a file of the worker, and a table may be misspelt."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from deputize.orchestrator.request_checks import check_requests
from deputize.shared.errors import Invalid
from deputize.shared.request import DelegationRequest
from deputize.shared.request_rules import foreign_script
from deputize.shared.settings import Settings
from tests.orchestrator.serving import settings
from tests.runs.bench import Bench, open_bench, say, script

SECRET = "hunter2-is-the-password"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "deputize.toml", "../../x", "~/.netrc", "/proc/self/environ", "\0", "x" * 9000]
)
async def test_a_request_that_names_a_script_is_refused(real: httpx2.AsyncClient, path: str) -> None:
    answer = await real.post("/v1/delegations", json={"task": "t", "model": f"scripted:{path}"})
    assert answer.status_code == 422
    assert [mistake["pointer"] for mistake in answer.json()["errors"]] == ["/model"]


TABLES = Settings.load(
    environ={},
    models={name: {"base_url": "http://127.0.0.1:1"} for name in ("house", "gpt-4o", "claude-opus", "qwen3")},
)


@pytest.mark.parametrize(
    ("model", "near"),
    [
        *((name, "house") for name in ("hose", "House", "HOUSE", "houze", "hous", "haus", "houses")),
        *((name, "claude-opus") for name in ("claude-opsu", "claude_opus", "claud-opus")),
        ("qwem3", "qwen3"),
        ("gtp-4o", "gpt-4o"),
    ],
)
def test_the_misspelt_name_of_a_table_is_refused_with_the_list_of_tables(model: str, near: str) -> None:
    with pytest.raises(Invalid) as refusal:
        check_requests([DelegationRequest(task="t", model=model)], [], TABLES, batch=False)
    assert refusal.value.errors == [{"pointer": "/model", "detail": refusal.value.detail}]
    wanted = f"there is no table [models.{model}]; did you mean {near}? There are house, gpt-4o, claude-opus, qwen3."
    assert refusal.value.detail == wanted


OWN = (
    "house house-2 house2 claude claude-sonnet claude-opus-5-5 claude-opus-latest gpt-4 gpt-4.1 gpt-5o gpt-4o-mini "
    "qwen qwen3-coder qwen2 qwen3.5 mouse:7b scripted"
)


@pytest.mark.parametrize("model", [None, *OWN.split(), "deepseek-chat", "anthropic:house", "x" * 200])
def test_what_may_be_the_own_name_of_a_model_is_accepted(model: str | None) -> None:
    check_requests([DelegationRequest(task="t", model=model)], [], TABLES, batch=False)


@pytest.mark.parametrize(
    ("table", "model"),
    [
        ("claude-opus-5", "claude-opus-5-5"),
        ("claude-opus-5-5", "claude-sonnet-5-5"),
        ("claude-opus-5-5", "claude-opus-5"),
        ("model-4567", "model-4568"),
    ],
)
def test_another_model_of_the_same_family_is_accepted(table: str, model: str) -> None:
    tables = Settings.load(environ={}, models={table: {"base_url": "http://127.0.0.1:1"}})
    check_requests([DelegationRequest(task="t", model=model)], [], tables, batch=False)


async def test_one_of_a_batch_that_names_a_script_refuses_the_batch(real: httpx2.AsyncClient) -> None:
    body = {"requests": [{"task": "t"}, {"task": "t", "model": "scripted:/etc/passwd"}]}
    assert (await real.post("/v1/delegations:batch", json=body)).status_code == 422
    assert (await real.get("/v1/delegations")).json()["items"] == []


async def test_a_worker_opens_no_file_that_its_own_settings_do_not_name(redis_url: str, tmp_path: Path) -> None:
    """What the service let pass, another service or an older one."""
    (tmp_path / "credentials").write_text(f"password: {SECRET}\n\t{SECRET}: [")
    async with open_bench(redis_url, tmp_path / "home", scripts=tmp_path / "scripts") as bench:
        result = await bench.run(model=f"scripted:{tmp_path}/credentials")
        assert not result.success
        assert "DEPUTIZE_SCRIPTS" in str(result.errors)
        assert "YAML" not in str(result)


async def test_a_file_that_is_no_script_is_not_quoted(bench: Bench, tmp_path: Path) -> None:
    for name, text in (("a.yaml", f"password: {SECRET}\n\t{SECRET}: ["), ("a.json", f'{{"password": {SECRET}}}')):
        (tmp_path / name).write_text(text)
        result = await bench.run(model=f"scripted:{tmp_path}/{name}")
        assert "line " in str(result.errors)
        assert SECRET not in result.to_json()


async def test_a_pattern_of_a_script_does_not_hold_the_worker(bench: Bench, tmp_path: Path) -> None:
    slow = "{{task /(a|aa)+$/}}"
    result = await bench.run("a" * 60 + "b", model=script(tmp_path, [say(slow)]))
    assert "regular expression" in str(result.errors)


def test_what_the_operator_names_may_be_named_by_requests_too(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link.yaml").symlink_to("/etc/passwd")
    chosen = Settings.load(environ={}, model="scripted:/opt/one.yaml", scripts=tmp_path / "in")
    inside, link = f"scripted:{tmp_path}/in/a.yaml", f"scripted:{tmp_path}/in/link.yaml"
    allowed = (None, "claude-sonnet-5-5", "scripted", "scripted:", "scripted:/opt/one.yaml", inside)
    assert [foreign_script(model, chosen) for model in allowed] == [None] * len(allowed)
    assert all(
        foreign_script(f"scripted:{path}", chosen) for path in (f"{tmp_path}/in/../x", "/opt/two.yaml", link[9:])
    )
    assert foreign_script("scripted:/opt/one.yaml", settings())
    assert DelegationRequest(task="t", model="scripted:x").model == "scripted:x"  # what is stored stays readable
