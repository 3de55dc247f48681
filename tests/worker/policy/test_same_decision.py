"""A call gets the same decision where it is explained, where the loop judges it, and where it is replayed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from deputize.shared.facts import Trust
from deputize.shared.request import ApprovalMode
from deputize.shared.settings import Settings
from deputize.worker.permission import Approval
from deputize.worker.policy import PolicyCall, PolicyContext, Rule
from deputize.worker.policy.explanation import Explainer, Replay, known_tools
from deputize.worker.policy.rule_file import by_priority
from deputize.worker.policy.shell import Decision
from deputize.worker.policy.trust import ReadSources
from deputize.worker.toolkit.sources import SchemaTool
from deputize.worker.tools.base import AnyTool, Effect, Kind, Origin, ToolContext, ToolResult
from deputize.worker.tools.traits import tool_traits
from tests.worker.policy.rule_files import CALLS, RULES, TOOLS, file_rules

SETTINGS = Settings(tools={"allowed_hosts": ["*.allowed.example"]})  # pyright: ignore[reportArgumentType] - validated
KNOWN = known_tools(SETTINGS)
MORE: list[tuple[str, dict[str, Any]]] = [
    *CALLS,
    ("bash", {"command": "sudo id"}),
    ("grep", {"pattern": "x", "path": "/etc"}),
    ("edit_file", {"path": "src/../a", "old_string": "a", "new_string": "b"}),
    ("web_fetch", {"url": "https://a.allowed.example/"}),
    ("call_subagent", {"task": "x"}),
]


class OfServer(SchemaTool):
    """A tool of a server, as it describes itself, and as the operator trusts it."""

    def __init__(self, name: str, kind: Kind, effect: Effect, *, trusted: bool) -> None:
        super().__init__(name, "A tool.", {"type": "object", "properties": {}}, kind=kind, effect=effect)
        self.origin = Origin("mcp", "git", name.rpartition("__")[2])
        self.trusted = trusted

    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        return ToolResult()


@dataclass(frozen=True)
class Run:
    mode: ApprovalMode
    depth: int
    labels: dict[str, str]
    tainted_by: list[str]

    @property
    def recorded(self) -> dict[str, Any]:
        return {"id": "dlg_1", "mode": self.mode.value, "labels": self.labels, "depth": self.depth}


RUNS = st.builds(
    Run,
    st.sampled_from(ApprovalMode),
    st.integers(0, 2),
    st.sampled_from([{}, {"team": "docs"}]),
    st.sampled_from([[], ["web"], ["mcp:git", "web"]]),
)
SERVERS_TOOLS = st.builds(
    OfServer,
    st.just("mcp__git__push"),
    st.sampled_from([Kind.READ, Kind.OTHER]),
    st.sampled_from(Effect),
    trusted=st.booleans(),
)


async def in_the_loop(tool: AnyTool, arguments: dict[str, Any], run: Run, rules: list[Rule]) -> Decision:
    context = PolicyContext(
        run.mode, allowed_hosts=SETTINGS.tools.allowed_hosts, rules=rules, depth=run.depth, labels=run.labels
    )
    reading = ReadSources(lambda text: None, Trust(tainted_by=run.tainted_by))
    approval = Approval(context, cast(Any, None), cast(Any, None), reading)
    return (await approval.verdict(PolicyCall.of(tool, tool.parse(arguments), arguments))).decision


def explained(name: str, arguments: dict[str, Any], run: Run, rules: list[Rule]) -> Decision:
    situation = PolicyContext(
        run.mode, depth=run.depth, labels=run.labels, trust=Trust(tainted_by=list(run.tainted_by))
    )
    return Explainer(SETTINGS, rules, KNOWN).explain(f"{name} {json.dumps(arguments)}", situation)["decision"]


async def replayed(name: str, arguments: dict[str, Any], run: Run, rules: list[Rule], tools: list[AnyTool]) -> Decision:
    """What the new rules decide: the replay shows it where the old ones, which are none, decide otherwise."""
    call = {"turn": 1, "call": "1", "name": name, "arguments": arguments, "taintedBy": run.tainted_by}
    further = [traits.to_dict() for traits in tool_traits(tools)]
    recording = json.loads(json.dumps({**run.recorded, "furtherTools": further, "calls": [call]}))
    found = Replay(SETTINGS, (), rules).run(recording)
    assert (found["judged"], found["notJudged"]) == (1, {})
    if found["changes"]:
        return found["changes"][0]["new"]["decision"]
    return await in_the_loop(tools[0] if tools else TOOLS[name], arguments, run, [])


@examples(max_examples=500)
@given(st.lists(RULES, max_size=4), st.sampled_from([call for call in MORE if call[0] in TOOLS]), RUNS)
async def test_a_call_of_a_tool_that_is_built_in(
    values: list[dict[str, Any]], call: tuple[str, dict[str, Any]], run: Run
) -> None:
    name, arguments = call
    rules: list[Rule] = [*by_priority(file_rules(values))]
    judged = await in_the_loop(TOOLS[name], arguments, run, rules)
    assert judged == explained(name, arguments, run, rules) == await replayed(name, arguments, run, rules, [])


@examples(max_examples=200)
@given(st.lists(RULES, max_size=4), SERVERS_TOOLS, RUNS)
async def test_a_call_of_a_servers_tool(values: list[dict[str, Any]], tool: OfServer, run: Run) -> None:
    rules: list[Rule] = [*by_priority(file_rules(values))]
    judged = await in_the_loop(tool, {}, run, rules)
    assert judged == await replayed(tool.name, {}, run, rules, [tool])
    if (tool.kind, tool.effect, tool.trusted) == (Kind.OTHER, Effect.EFFECTFUL, False):  # what is supposed of it
        assert judged == explained(tool.name, {}, run, rules)
