"""Whole runs: what their conversations have read stands in the result, and rules match it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.events import RunStarted, StepCompleted, TurnStarted
from deputize.shared.facts import Trust
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import LEASES
from deputize.worker.task import carry_out
from tests.internet import response
from tests.nesting import begin, by_task, carrying_out, children_of, delegate
from tests.running import Bench, call, open_bench, say, script
from tests.waiting import until
from tests.worker.mcp.entries import raw
from tests.worker.mcp.workers import configure
from tests.worker.web.servers import saying, serving

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
        await bench.store.redis.zadd(LEASES, {id: 1})
        assert len(await bench.store.reap(30)) == 1
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
