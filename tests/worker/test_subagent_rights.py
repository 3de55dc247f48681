"""A child never may do what its parent may not, whatever both of them and the operator's rules are."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from deputize.shared.errors import ToolError
from deputize.shared.request import ApprovalMode, DelegationRequest, Limits
from deputize.shared.runs.record import Claim
from deputize.shared.settings import Settings
from deputize.shared.settings.fields import AgentSettings
from deputize.worker.policy import PolicyCall, PolicyContext, Rule, Verdict, decide, within
from deputize.worker.policy.shell.classify import Decision, strictest
from deputize.worker.subagents import Inheritance
from deputize.worker.tools import BUILTIN
from deputize.worker.tools.base import AnyTool
from tests.nesting import by_task, carrying_out, children_of, delegate
from tests.running import open_bench, say
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
