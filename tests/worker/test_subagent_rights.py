"""A child never may do what its parent may not, whatever both of them and the operator's rules are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import SecretStr

from deputize.shared.errors import ToolError
from deputize.shared.limits import Limits
from deputize.shared.request import ApprovalMode, DelegationRequest
from deputize.shared.runs.record import Claim
from deputize.shared.settings import Settings
from deputize.shared.settings.fields import AgentSettings
from deputize.worker.policy import PolicyCall, PolicyContext, Rule, Verdict, decide, within
from deputize.worker.policy.shell import Decision, strictest
from deputize.worker.subagents.inheritance import Inheritance
from deputize.worker.tools.base import AnyTool
from deputize.worker.tools.builtin import BUILTIN
from tests.fake_model import FakeModel, Turn, text
from tests.runs.bench import Bench, open_bench, say
from tests.runs.nesting import by_task, carrying_out, children_of, delegate
from tests.worker.parents import WRITE, run

PAIRS = 10_000
KIT = {tool.name: tool for tool in BUILTIN}
MODES = [*ApprovalMode]
ARGUMENTS: dict[str, dict[str, Any]] = {
    "read_file": {"path": "a"},
    "write_file": {"path": "a", "content": ""},
    "bash": {"command": "make"},
    "web_fetch": {"url": "http://example.org"},
}
LABELS = ({}, {"team": "docs"}, {"subagent": "scribe"}, {"subagent": "free", "team": "ops"})


def rule(random: Random) -> Rule:
    """A rule of the operator: for some tools, and for some labels, modes or depths."""
    tools, decision = set(random.sample([*ARGUMENTS], 2)), random.choice([*Decision])
    labels, mode, depth = random.choice(LABELS), random.choice([*MODES, None]), random.choice([0, 1, 2, None])

    def found(call: PolicyCall, context: PolicyContext) -> Verdict | None:
        fits = labels.items() <= context.labels.items() and mode in (None, context.mode)
        applies = call.tool.name in tools and fits and depth in (None, context.depth)
        return Verdict(decision, "because", "rule") if applies else None

    return found


def claim_of(request: DelegationRequest, depth: int) -> Claim:
    return Claim("dlg_parent", "1:x", 1, 1, request, Limits(), [], {}, {}, depth)


def some(random: Random, names: list[str]) -> list[str] | None:
    return random.choice([None, random.sample(names, random.randint(1, len(names)))])


def pair(random: Random) -> tuple[Inheritance, DelegationRequest]:
    kit: dict[str, AnyTool] = {name: KIT[name] for name in random.sample([*KIT], 6)}
    agents = {"agent": AgentSettings(approval_mode=random.choice([*MODES, None]), tools=some(random, [*KIT]))}
    labels = random.choice(LABELS)
    parent = DelegationRequest(task="x", approval_mode=random.choice(MODES), labels=labels, tools=[*kit])
    mine = Inheritance(claim_of(parent, random.randint(0, 2)), Settings(agents=agents), kit, Path("/nonexistent"))
    asked: dict[str, Any] = {"task": "y", "labels": random.choice(LABELS), "tools": some(random, [*KIT])}
    asked |= random.choice([{}, {"agent": "agent"}, {"approval_mode": random.choice(MODES)}])
    return mine, DelegationRequest(**asked)


@pytest.mark.costly
@pytest.mark.requirement("S003-002", "S004-007")
def test_ten_thousand_children_are_never_wider_than_their_parents() -> None:
    random = Random(7)
    calls = {name: PolicyCall.of(KIT[name], KIT[name].parse(given), given) for name, given in ARGUMENTS.items()}
    made = 0
    for _ in range(PAIRS):
        mine, asked = pair(random)
        try:
            child = mine.request(asked, "key", copy=False)
        except ToolError:
            continue
        made += 1
        assert child.tools is not None
        assert {*child.tools} <= {*mine.kit}
        assert MODES_BY_RIGHTS[child.approval_mode] <= MODES_BY_RIGHTS[mine.claim.request.approval_mode]
        rules = [rule(random) for _ in range(random.randint(0, 3))]
        own = PolicyContext(child.approval_mode, rules=rules, depth=mine.claim.depth + 1, labels=child.labels)
        parent = within(own, mine.claim.request, mine.claim.depth)
        nested = PolicyContext(own.mode, rules=rules, depth=own.depth, labels=own.labels, above=[parent])
        for name in calls.keys() & {*child.tools}:
            verdicts = [decide(calls[name], context).decision for context in (nested, parent, own)]
            assert verdicts[0] is strictest(verdicts), (name, mine.claim.request, child)
    assert made > PAIRS / 3


MODES_BY_RIGHTS = {ApprovalMode.READ_ONLY: 0, ApprovalMode.ASK: 1, ApprovalMode.SANDBOXED: 2, ApprovalMode.AUTO: 3}


EFFORTS: list[tuple[dict[str, Any], dict[str, Any], str | None]] = [
    ({"effort": "high"}, {}, "high"),
    ({"effort": "high"}, {"effort": "low"}, "low"),
    ({"effort": "high"}, {"agent": "careful"}, "max"),
    ({"effort": "high"}, {"agent": "careful", "effort": "low"}, "low"),
    ({"effort": "high"}, {"model": "house"}, "medium"),
    ({"effort": "high"}, {"model": "other"}, None),
    ({"effort": "high", "model": "other"}, {"model": "other"}, "high"),
    ({"model": "other"}, {}, None),
]
"""Of the parent, of the call, and what the child gets."""


@pytest.mark.parametrize(("parent", "asked", "effort"), EFFORTS)
def test_a_child_has_its_own_effort_or_its_models_or_that_of_a_parent_with_the_same_model(
    parent: dict[str, Any], asked: dict[str, Any], effort: str | None
) -> None:
    """Issue 39, point 2."""
    settings = Settings.load(environ={}, models={"house": {"effort": "medium"}, "other": {}})
    settings = settings.model_copy(update={"agents": {"careful": AgentSettings(effort="max")}})
    claim = claim_of(DelegationRequest(task="x", **parent), 0)
    child = Inheritance(claim, settings, {}, Path("/nonexistent")).request(
        DelegationRequest(task="y", **asked), "key", copy=False
    )
    assert child.effort == effort


FREE = """
[[rule]]
name = "free"
decision = "allow"
tool = "write_file"
label = { subagent = "free" }
"""


async def test_a_name_that_a_model_chooses_does_not_free_its_child(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(FREE)
    asked = delegate("child", agent_name="free")
    model = by_task(tmp_path, parent=[[asked], [say("ok")]], child=[[WRITE], [say("ok")]])
    async with open_bench(redis_url, tmp_path / "home", policy=[tmp_path / "rules.toml"]) as bench:
        async with carrying_out(bench):
            id = await run(bench, model=model, approval_mode=ApprovalMode.ASK)
        (child,) = await children_of(bench.store, id)
        (step,) = await bench.steps(child.id)
    assert child.request.labels == {"subagent": "free"}
    assert step.error is not None
    assert step.error.startswith("denied: write_file changes something (edit)")


# Runs of named agents: their own words before ours, also as subagents, and never more rights than the parent.


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


async def test_a_named_subagent_gets_its_words_its_limits_and_the_tools_its_parent_has(
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
async def test_an_agent_that_cannot_be_had_is_an_error_with_its_reason(
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
