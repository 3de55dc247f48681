"""Which source a call lets a conversation read, and what taints it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult
from deputize.shared.facts import Trust
from deputize.worker.policy.known_tools import AbsentTool
from deputize.worker.tools import BUILTIN
from deputize.worker.tools.base import AnyTool, ToolResult
from deputize.worker.trust.sources import ReadSources

TOOLS: dict[str, AnyTool] = {tool.name: tool for tool in BUILTIN}
CLEAN, WEB = Trust(sources=["parent", "workspace"]), Trust(sources=["parent", "web"], tainted_by=["web"])


def after(name: str, trusted: bool = False, reaches: bool = False, data: Any = None, **arguments: Any) -> Trust:
    """What is read by a call of this tool, without the task."""
    tool = TOOLS.get(name) or AbsentTool(name)
    if trusted:
        tool.trusted = True
    reading = ReadSources(lambda text: None, commands_reach_hosts=reaches)
    reading.note(tool, tool.parse(arguments), ToolResult("text", data=data))
    return reading.trust


def child(trust: Trust) -> ToolAgentResult:
    reason = TerminationReason.COMPLETED
    return ToolAgentResult(delegation_id="dlg_1", status=Status.SUCCEEDED, termination_reason=reason, trust=trust)


def test_a_call_reads_the_source_that_its_tool_leads_to() -> None:
    assert after("read_file", path="a") == Trust(sources=["workspace"])
    assert after("bash", command="ls") == Trust(sources=["workspace"])
    assert after("web_fetch", url="https://example.org/") == Trust(sources=["web"], tainted_by=["web"])
    assert after("mcp__git__log") == Trust(sources=["mcp:git"], tainted_by=["mcp:git"])
    assert after("mcp__git__log", trusted=True) == Trust(sources=["mcp:git"])
    assert after("write_todos", todos=[{"content": "x", "status": "pending"}]) == Trust()


def test_commands_that_reach_hosts_may_read_the_web() -> None:
    assert after("bash", reaches=True, command="ls").tainted_by == ["web"]
    assert after("bash_output", reaches=True, bash_id="1").tainted_by == ["web"]
    assert not after("read_file", reaches=True, path="a").tainted


def test_a_subagent_hands_on_what_tainted_it() -> None:
    task: dict[str, Any] = {"task": "x"}
    assert after("call_subagent", data=child(CLEAN), **task) == Trust(sources=["subagent:dlg_1"])
    assert after("call_subagent", data=child(WEB), **task) == Trust(
        sources=["subagent:dlg_1", "web"], tainted_by=["subagent:dlg_1", "web"]
    )
    assert after("call_subagent", **task) == Trust()  # it never began


def test_only_changes_are_stored() -> None:
    stored: list[str] = []
    reading = ReadSources(stored.append)
    reading.begin(WEB.handed_on())
    for _ in range(2):
        reading.note(TOOLS["read_file"], TOOLS["read_file"].parse({"path": "a"}), ToolResult("text"))
    expected = Trust(sources=["parent", "web", "workspace"], tainted_by=["web"])
    assert [Trust.model_validate_json(text).sources for text in stored] == [["parent", "web"], expected.sources]
    assert reading.trust == Trust.model_validate_json(stored[-1]) == expected


SOURCES = some.sampled_from(["parent", "workspace", "web", "mcp:a", "mcp:b", "subagent:dlg_1"])
TRUSTS = some.builds(
    lambda sources, taint: Trust(sources=sources, tainted_by=[each for each in sources if each in taint]),
    some.lists(SOURCES, unique=True),
    some.sets(SOURCES),
)


@given(TRUSTS, TRUSTS)
def test_nothing_that_was_read_is_forgotten(one: Trust, other: Trust) -> None:
    both = one.plus(other)
    assert {*both.sources} == {*one.sources, *other.sources}
    assert {*both.tainted_by} == {*one.tainted_by, *other.tainted_by}
    assert both.tainted == (one.tainted or other.tainted)
    assert both.plus(one) == both
    assert both.handed_on().tainted_by == both.tainted_by


@pytest.mark.parametrize("text", ['{"sources":["web"],"taintedBy":["web"]}', "{}"])
def test_tainted_is_derived(text: str) -> None:
    assert Trust.model_validate_json(text).tainted == ("web" in text)
