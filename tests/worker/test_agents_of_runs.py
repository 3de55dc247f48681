"""Runs of named agents: their own words before ours, also as subagents, and never more rights than the parent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.fake_model import FakeModel, Turn, text
from tests.nesting import by_task, carrying_out, children_of, delegate
from tests.running import Bench, open_bench, say
from tests.worker.parents import run

AGENTS = {
    "reviewer": {
        "description": "Reads and judges.",
        "system_prompt": "You review.",
        "tools": ["read_*", "bash"],
        "limits": {"max_turns": 3},
        "approval_mode": "auto",
    },
    "reader": {"approval_mode": "readOnly"},
    "surfer": {"tools": ["web_*"]},
}


@pytest.fixture
async def busy(redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(redis_url, tmp_path / "home", agents=AGENTS) as bench, carrying_out(bench):
        yield bench


async def test_a_run_with_a_system_prompt_of_its_own_knows_its_workspace_all_the_same(
    redis_url: str, tmp_path: Path
) -> None:
    async with FakeModel([Turn([text("done")])]) as fake:
        endpoint = {"ANTHROPIC_BASE_URL": SecretStr(fake.url), "ANTHROPIC_API_KEY": SecretStr(fake.key)}
        chosen = {
            "sandbox": {"profiles": {"net": {"allowed_hosts": ["example.org"]}}},
            "agents": {"a": {"sandbox": "net"}},
        }
        async with open_bench(redis_url, tmp_path / "home", model_endpoint=endpoint, **chosen) as bench:
            await bench.run("look", model="claude-sonnet-5-5", system_prompt="You review {prices}.", agent="a")
        (asked,) = fake.journal
    system = asked.body["system"] if isinstance(asked.body["system"], str) else asked.body["system"][0]["text"]
    assert system.startswith("You review {prices}.\n\nAnother agent has handed you")
    assert "You are a worker agent" not in system
    assert "Your workspace is /workspace" in system
    assert "whose network reaches example.org only" in system
    assert "The network reaches example.org, by the proxy" in str(asked.body["tools"])


async def test_a_named_subagent_gets_its_words_limits_and_those_of_its_tools_that_the_parent_has(
    busy: Bench, tmp_path: Path
) -> None:
    model = by_task(tmp_path, parent=[[delegate("child", agent="reviewer")], [say("ok")]], child=[[say("Fine.")]])
    id = await run(busy, model=model, tools=["call_subagent", "read_file", "read_many_files", "glob"])
    (child,) = await children_of(busy.store, id)
    assert (child.request.agent, child.request.system_prompt, child.request.model) == ("reviewer", "You review.", model)
    assert sorted(child.request.tools or []) == ["read_file", "read_many_files"]
    assert child.request.approval_mode == "sandboxed"  # the parent's is stricter than the agent's
    assert child.effective_limits.max_turns == 3


async def test_a_subagents_own_mode_holds_where_it_is_stricter(busy: Bench, tmp_path: Path) -> None:
    model = by_task(tmp_path, parent=[[delegate("child", agent="reader")], [say("ok")]], child=[[say("Fine.")]])
    (child,) = await children_of(busy.store, await run(busy, model=model))
    assert child.request.approval_mode == "readOnly"


@pytest.mark.parametrize(
    ("agent", "why"), [("reviwer", "did you mean reviewer or reader?"), ("surfer", "this run has none of its tools")]
)
async def test_an_agent_that_cannot_be_had_is_an_error_that_says_why(
    busy: Bench, tmp_path: Path, agent: str, why: str
) -> None:
    model = by_task(tmp_path, parent=[[delegate("child", agent=agent)], [say("ok")]], child=[[say("Fine.")]])
    id = await run(busy, model=model, tools=["call_subagent", "read_file"])
    assert why in (await busy.answers(id))[0]
    assert await children_of(busy.store, id) == []


async def test_the_tool_lists_the_agents_there_are(busy: Bench, bench: Bench) -> None:
    of = {
        each: next(t for t in b.services.status.offered.tools if t.name == "call_subagent")
        for each, b in (("a", busy), ("b", bench))
    }
    assert "- reviewer: Reads and judges." in of["a"].description
    assert of["a"].schema["properties"]["agent"]["enum"] == ["reviewer", "reader", "surfer", None]
    assert "agent" not in of["b"].schema["properties"]
