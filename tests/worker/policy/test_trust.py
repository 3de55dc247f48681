"""Which source a call lets a conversation read, what taints it, and what the results and rules of runs make of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult
from deputize.shared.events import RunStarted, StepCompleted, TurnStarted
from deputize.shared.facts import Trust
from deputize.shared.request import DelegationRequest
from deputize.worker.policy.explanation import AbsentTool
from deputize.worker.policy.trust import ReadSources
from deputize.worker.task import carry_out
from deputize.worker.tools.base import AnyTool, ToolResult
from deputize.worker.tools.builtin import BUILTIN
from tests.network.internet import response
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.runs.nesting import begin, by_task, carrying_out, children_of, delegate
from tests.waiting import until
from tests.worker.mcp.opening import configure
from tests.worker.mcp.servers import raw
from tests.worker.web.servers import saying, serving

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
    stored: list[Trust] = []
    reading = ReadSources(stored.append)
    reading.begin(WEB.handed_on())
    for _ in range(2):
        reading.note(TOOLS["read_file"], TOOLS["read_file"].parse({"path": "a"}), ToolResult("text"))
    expected = Trust(sources=["parent", "web", "workspace"], tainted_by=["web"])
    assert [trust.sources for trust in stored] == [["parent", "web"], expected.sources]
    assert reading.trust == stored[-1] == expected


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


AFTER_THE_WEB = """
[[rule]]
name = "after-the-web"
decision = "ask"
reason = "it has read the web, which may have asked for this"
kind = "other"
taint = "web"
"""
LOOK = call("glob", pattern="*")
WRITE = call("write_file", path="a.txt", content="one\n")


@asynccontextmanager
async def web_worker(redis_url: str, home: Path, **settings: Any) -> AsyncIterator[tuple[Bench, dict[str, Any]]]:
    """A worker, and a call that fetches a page without approval."""
    async with serving(saying(response("a page", "text/plain"))) as at:
        tools = {"private_hosts": [at], "allowed_hosts": ["*"], "mcp_connect_seconds": 60}
        async with open_bench(redis_url, home / "home", tools=tools, **settings) as bench:
            yield bench, call("web_fetch", url=f"http://{at}/")


async def events(bench: Bench, id: str, kind: type[Any]) -> list[Any]:
    return [envelope.event for envelope in await bench.events(id) if isinstance(envelope.event, kind)]


async def test_the_result_has_what_was_read_and_each_turn_what_tainted_it(redis_url: str, tmp_path: Path) -> None:
    async with web_worker(redis_url, tmp_path) as (bench, fetch):
        clean = await bench.run(model=script(tmp_path, [LOOK], [say("done")]))
        tainted = await bench.run(model=script(tmp_path, [LOOK], [fetch], [say("done")]))
        none = await bench.run(model=script(tmp_path, [say("done")]))
        turns = await events(bench, tainted.delegation_id, TurnStarted)
    assert none.trust == Trust(sources=["parent"])
    assert clean.trust == Trust(sources=["parent", "workspace"])
    assert tainted.trust == Trust(sources=["parent", "workspace", "web"], tainted_by=["web"])
    assert [turn.tainted_by for turn in turns] == [[], [], ["web"]]


async def test_a_rule_asks_about_an_effect_after_the_web_was_read(redis_url: str, tmp_path: Path) -> None:
    configure(tmp_path, raw=raw(trust=True))
    (tmp_path / "rules.toml").write_text(AFTER_THE_WEB)
    effect = call("mcp__raw__babble")
    chosen: dict[str, Any] = {"mcp_config": tmp_path / "mcp.json", "policy": [tmp_path / "rules.toml"]}
    async with web_worker(redis_url, tmp_path, **chosen) as (bench, fetch):
        # The second turn's effect was decided on before its page was read.
        result = await bench.run(model=script(tmp_path, [effect], [fetch, effect], [effect], [say("done")]))
        steps = [each.step for each in await events(bench, result.delegation_id, StepCompleted)]
    assert [step.error is None for step in steps] == [True, True, True, False]
    assert "it has read the web, which may have asked for this. This needs a person's approval" in steps[-1].error
    assert result.trust == Trust(sources=["parent", "mcp:raw", "web"], tainted_by=["web"])


async def test_a_server_that_is_not_trusted_taints(redis_url: str, tmp_path: Path) -> None:
    configure(tmp_path, raw=raw())
    async with web_worker(redis_url, tmp_path, mcp_config=tmp_path / "mcp.json") as (bench, _):
        model = script(tmp_path, [call("mcp__raw__babble")], [say("done")])
        refused = await bench.run(model=model)
        made = await bench.run(model=model, approval_mode="auto")
        (started,) = await events(bench, made.delegation_id, RunStarted)
        read = await bench.run(model=script(tmp_path, [call("mcp__raw__echo", text="x")], [say("done")]))
    assert refused.trust == Trust(sources=["parent"])  # it was denied, so it was not read
    traits = {each.name: (each.kind, each.server, each.trusted) for each in started.further_tools}
    assert traits["mcp__raw__babble"] == ("other", "raw", False)
    assert traits["mcp__raw__echo"] == ("read", "raw", False)
    assert made.trust == read.trust == Trust(sources=["parent", "mcp:raw"], tainted_by=["mcp:raw"])


async def test_what_was_read_is_kept_across_attempts(redis_url: str, tmp_path: Path) -> None:
    hold = call("bash", command="touch begun; exec sleep 1000")
    async with web_worker(redis_url, tmp_path) as (bench, fetch):
        model = script(tmp_path, [fetch, hold], [LOOK], [say("done")])
        id = await bench.accept(DelegationRequest(task="do it", model=model))
        running = asyncio.create_task(carry_out(bench.services, id))
        await until(lambda: list((bench.settings.workspaces / id).glob("files*/begun")))
        await bench.lose(id)
        running.cancel()
        await asyncio.wait({running})
        await carry_out(bench.services, id)
        result = await bench.result(id)
        turns = await events(bench, id, TurnStarted)
    assert (result.success, result.attempts) == (True, 2)
    assert result.trust == Trust(sources=["parent", "web", "workspace"], tainted_by=["web"])
    assert [turn.tainted_by for turn in turns] == [[], ["web"], ["web"]]


async def test_a_try_from_the_start_has_read_nothing(redis_url: str, tmp_path: Path) -> None:
    async with web_worker(redis_url, tmp_path) as (bench, fetch):
        model = script(tmp_path, {"blocks": [fetch]}, [LOOK], [say("done")])
        retry = {"attempts": 1, "on": ["max_turns"]}
        fields = {"task": "do it", "model": model, "retry": retry, "limits": {"maxTurns": 1}}
        id = await bench.accept(DelegationRequest.model_validate(fields))
        await carry_out(bench.services, id)
        await until(lambda: bench.store.redis.hget(f"deputize:run:{{{id}}}", "retries"))
        assert not await bench.store.redis.hexists(f"deputize:run:{{{id}}}", "trust")


@pytest.mark.parametrize("read", ["before", "inside"])
async def test_taint_passes_between_parent_and_child(redis_url: str, tmp_path: Path, read: str) -> None:
    async with web_worker(redis_url, tmp_path) as (bench, fetch), carrying_out(bench):
        parent = [[delegate("child")], [say("ok")]]
        first, child = ([[fetch], *parent], [[say("ok")]]) if read == "before" else (parent, [[fetch], [say("ok")]])
        id, running = await begin(bench, model=by_task(tmp_path, parent=first, child=child))
        await running
        (of_child,) = await children_of(bench.store, id)
        result = await bench.result(id)
    assert of_child.result
    assert of_child.result.trust == Trust(sources=["parent", "web"], tainted_by=["web"])
    assert {*result.trust.sources} == {"parent", "web", f"subagent:{of_child.id}"}
    assert {*result.trust.tainted_by} == {"web", f"subagent:{of_child.id}"}


async def test_a_child_that_read_only_files_taints_nothing(redis_url: str, tmp_path: Path) -> None:
    async with web_worker(redis_url, tmp_path) as (bench, _), carrying_out(bench):
        model = by_task(tmp_path, parent=[[delegate("child")], [say("ok")]], child=[[WRITE], [say("ok")]])
        id, running = await begin(bench, model=model)
        await running
        result = await bench.result(id)
    assert (result.trust.tainted, len(result.trust.sources)) == (False, 2)


async def test_a_run_that_goes_on_with_a_conversation_has_read_what_that_had(redis_url: str, tmp_path: Path) -> None:
    async with web_worker(redis_url, tmp_path) as (bench, fetch):
        first = await bench.run(model=script(tmp_path, [fetch], [say("done")]))
        on = await bench.run(model=script(tmp_path, [say("done")]), continues=first.delegation_id)
        again = await bench.run(model=script(tmp_path, [say("done")]), retry_of=first.delegation_id)
    assert on.trust == first.trust == Trust(sources=["parent", "web"], tainted_by=["web"])
    assert again.trust == Trust(sources=["parent"])
