"""Whole runs with tools of MCP servers: called, missing, refused, and the same ones after a crash."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.events import ErrorSeen, RunStarted, StepCompleted
from deputize.shared.request import ApprovalMode, DelegationRequest
from deputize.shared.runs.keys import channel
from deputize.worker.models.base import Model, Part, Price, Prompt, ToolSpec
from deputize.worker.task import carry_out
from tests.runs.bench import Bench, call, say, script
from tests.waiting import until
from tests.worker.mcp.opening import configure, worker
from tests.worker.mcp.servers import raw

SLEEP = call("bash", command="touch begun; exec sleep 1000")


class Watched:
    """A model that follows a script, and what it read about its tools in each turn."""

    name = "watched"
    endpoint_id = None

    def __init__(self, model: Model) -> None:
        self._model = model
        self.told: list[tuple[ToolSpec, ...]] = []

    def price(self) -> Price | None:
        return None

    def window(self) -> int:
        return self._model.window()

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Part]:
        self.told.append(prompt.tools)
        async for part in self._model.reply(prompt):
            yield part


async def watch(bench: Bench, model: str) -> Watched:
    """Makes ``model`` the one that is called ``watched``."""
    watched = Watched(await bench.services.model(model))

    async def opened() -> Model:
        return watched

    bench.services.models["watched"] = asyncio.create_task(opened())
    return watched


async def interrupted(bench: Bench, id: str) -> None:
    """Carries a run out as far as its command that sleeps, where its worker stops."""
    await bench.interrupt(id, (bench.settings.workspaces / id / "files" / "begun").exists)


async def answers(bench: Bench, result: ToolAgentResult) -> str:
    return " ".join((await bench.store.conversation(result.delegation_id))[0])


def dynamic(told: tuple[ToolSpec, ...]) -> list[str]:
    return [spec.name for spec in told if spec.name.startswith("mcp__")]


@pytest.mark.requirement("S002-050", "S000-024", "S000-104")
async def test_a_run_calls_a_servers_tools_and_reports_what_is_missing(redis_url: str, tmp_path: Path) -> None:
    """A good server, one that may do without approval what it wants, and one that is broken."""
    configure(tmp_path, good=raw(), free=raw(trust=["babble"]), broken=raw("die"))
    calls = [call("mcp__good__echo", text="over here"), call("mcp__good__babble"), call("mcp__free__babble")]
    model = script(tmp_path, calls, [say("All asked.")])
    async with worker(redis_url, tmp_path) as bench:
        result = await bench.run(model=model, approval_mode="readOnly")
        assert (result.status, result.summary) == ("succeeded", "All asked.")
        events = [envelope.event for envelope in await bench.events(result.delegation_id)]
        (missing,) = [event for event in events if isinstance(event, ErrorSeen)]
        assert missing.kind == "tools_missing"
        assert "the MCP server 'broken' is left out" in missing.message
        assert "no licence found" in missing.message
        assert missing.message in result.errors
        (started,) = [event for event in events if isinstance(event, RunStarted)]
        assert started.tools.index("read_file") < started.tools.index("mcp__free__echo")
        assert started.tools.index("mcp__free__echo") < started.tools.index("mcp__good__echo")
        ended = {event.step.tool_name: event.step for event in events if isinstance(event, StepCompleted)}
        assert ended["mcp__good__echo"].result == "over here"
        assert ended["mcp__good__echo"].title == "good: echo"
        said = await answers(bench, result)
        assert "denied: this delegation is read-only" in said
        assert "done babbling" not in said
        trusting = await bench.run(model=model, approval_mode="ask")
        assert "done babbling" in await answers(bench, trusting)


@pytest.mark.requirement("S000-010")
async def test_either_setting_names_the_file_and_the_shorter_one_wins(redis_url: str, tmp_path: Path) -> None:
    long, short = (configure(folder, **{folder.name: raw()}) for folder in (tmp_path / "long", tmp_path / "short"))
    model = script(tmp_path, [say("Nothing to do.")])
    for named, server in ((None, "long"), (short, "short")):
        tools = {"mcp_config_path": long, "mcp_connect_seconds": 60}
        async with worker(redis_url, tmp_path, mcp_config=named, tools=tools) as bench:
            result = await bench.run(model=model)
            (started,) = [e.event for e in await bench.events(result.delegation_id) if isinstance(e.event, RunStarted)]
        assert {tool.split("__")[1] for tool in started.tools if tool.startswith("mcp__")} == {server}


@pytest.mark.requirement("P-17")
async def test_a_servers_secret_is_never_shown(redis_url: str, tmp_path: Path) -> None:
    configure(tmp_path, raw=raw(env={"API_KEY": "sk-of-the-server", "PLACE": "over the rainbow"}))
    model = script(tmp_path, [call("mcp__raw__environ")], [say("It is sk-of-the-server.")])
    async with worker(redis_url, tmp_path) as bench:
        result = await bench.run(model=model, approval_mode="auto")
        assert result.summary == "It is ***."
        said = " ".join(envelope.to_json() for envelope in await bench.events(result.delegation_id))
        assert "over the rainbow" in said
        assert "sk-of-the-server" not in said


async def test_progress_of_a_call_is_live_news_of_its_step(redis_url: str, tmp_path: Path) -> None:
    configure(tmp_path, raw=raw(trust=True))
    async with worker(redis_url, tmp_path) as bench:
        model = script(tmp_path, [call("mcp__raw__wait")], [say("never")])
        id = await bench.accept(DelegationRequest(task="do it", model=model, approval_mode=ApprovalMode.AUTO))
        async with bench.bus.listen(channel(id)) as inbox:
            running = asyncio.create_task(carry_out(bench.services, id))
            event: dict[str, Any] = {}
            while event.get("type") != "step_updated":
                event = json.loads(await inbox.get() or "{}")
            assert event["metadata"] == {"progress": 1.0, "total": 3.0, "message": "a third"}
        await bench.store.cancel(id)
        await running
        assert (await bench.result(id)).status == "cancelled"
        notes = bench.settings.workspaces / id / "files" / "notes"
        assert "cancelled" in notes.read_text()


@pytest.mark.requirement("S001-032")
async def test_a_name_no_server_has_is_refused_unless_its_server_is_broken(redis_url: str, tmp_path: Path) -> None:
    configure(tmp_path, good=raw(), broken=raw("die"))
    model = script(tmp_path, [say("Done without.")])
    async with worker(redis_url, tmp_path) as bench:
        refused = await bench.run(model=model, tools=["read_file", "mcp__good__nope"])
        assert refused.termination_reason == "refused"
        assert "did you mean mcp__good__" in refused.errors[0]
        for pattern in ("mcp__broken__echo", "mcp__broken__*", "mcp__brok*"):
            without = await bench.run(model=model, tools=["read_file", pattern])
            assert without.termination_reason == "completed"
            assert "the MCP server 'broken' is left out" in without.errors[0]
        unasked = await bench.run(model=model, tools=["read_file"])
        assert unasked.errors == []


@pytest.mark.requirement("P-16")
async def test_after_a_crash_the_model_has_the_very_same_tools(redis_url: str, tmp_path: Path) -> None:
    """One server is gone by then, another has changed its tools, a third is new."""
    configure(tmp_path, gone=raw(tools={"allow": ["echo", "die"]}), stays=raw(tools={"allow": ["echo"]}))
    turns = [
        [call("mcp__gone__echo", text="once")],
        [call("mcp__gone__die", text="x"), SLEEP],
        [call("mcp__gone__echo", text="again"), call("mcp__stays__echo", text="still")],
        [say("done")],
    ]
    async with worker(redis_url, tmp_path) as bench:
        watched = await watch(bench, script(tmp_path, *turns))
        id = await bench.accept(DelegationRequest(task="do it", model="watched", approval_mode=ApprovalMode.AUTO))
        await interrupted(bench, id)
        told = watched.told[-1]
        configure(tmp_path, gone=raw("die"), stays=raw(), new=raw())
        await carry_out(bench.services, id)
        result = await bench.result(id)
        assert (result.termination_reason, result.attempts) == ("completed", 2)
        assert dynamic(told) == ["mcp__gone__echo", "mcp__gone__die", "mcp__stays__echo"]
        assert [list(map(astuple, again)) == list(map(astuple, told)) for again in watched.told] == [True] * 4
        said = await answers(bench, result)
        assert "mcp__gone__echo is no longer available: the MCP server 'gone' is not reachable" in said
        assert "still" in said
        assert any("the MCP server 'gone' is left out" in error for error in result.errors)
        assert not any("'new'" in error for error in result.errors)


async def test_a_run_that_had_no_further_tools_gets_none_later(redis_url: str, tmp_path: Path) -> None:
    configure(tmp_path)
    turns = [[SLEEP], [say("done")]]
    async with worker(redis_url, tmp_path) as bench:
        watched = await watch(bench, script(tmp_path, *turns))
        id = await bench.accept(DelegationRequest(task="do it", model="watched"))
        await interrupted(bench, id)
        configure(tmp_path, new=raw())
        await carry_out(bench.services, id)
        assert (await bench.result(id)).attempts == 2
    assert [dynamic(told) for told in watched.told] == [[], []]


@pytest.mark.requirement("S000-022")
async def test_a_worker_logs_what_it_has_at_its_start_and_announces_it(
    redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = configure(tmp_path, good=raw(tools={"allow": ["echo", "die"]}), broken=raw("die"))
    caplog.set_level(logging.INFO, "deputize")
    async with worker(redis_url, tmp_path) as bench:

        async def card_names_them() -> bool:
            cards = await bench.services.status.fleet.workers()
            return [card.tools[-2:] for card in cards] == [["mcp__good__echo", "mcp__good__die"]]

        await until(card_names_them)

        async def announced() -> list[str]:
            return [card.source for card in await bench.services.status.fleet.tools() if card.name == "mcp__good__echo"]

        assert await until(announced) == ["mcp:good"]
        await until(lambda: "workspaces lie below" in caplog.text)
    assert f"2 MCP tools of good, from {file}" in caplog.text
    assert "the MCP server 'broken' is left out" in caplog.text
    assert str(tmp_path / "home" / "workspaces") in caplog.text
    assert "tools: read_file" in caplog.text


@pytest.mark.requirement("S000-104")
async def test_switched_off_no_server_is_started(redis_url: str, tmp_path: Path) -> None:
    configure(tmp_path, deaf=raw("deaf"))
    async with worker(redis_url, tmp_path, tools={"enable_mcp": False}) as bench:
        result = await bench.run(model=script(tmp_path, [say("done")]))
        assert (result.errors, result.summary) == ([], "done")


async def test_a_servers_tool_that_claims_to_read_cannot_write(redis_url: str, tmp_path: Path) -> None:
    """The raw server notes every call in a file of the workspace, and announces this tool as one that only reads."""
    configure(tmp_path, raw=raw())
    asked = [call("mcp__raw__environ")]
    async with worker(redis_url, tmp_path) as bench:
        may = await bench.run(model=script(tmp_path, asked, [say("Done.")]))
        may_not = await bench.run(model=script(tmp_path, asked, [say("Done.")]), approval_mode="readOnly")
    assert may.files_modified == ["notes"]
    assert (may_not.files_modified, may_not.termination_reason) == ([], "completed")
    assert may_not.errors == []


async def test_a_server_outside_of_the_sandbox_is_left_out_unless_it_is_trusted(redis_url: str, tmp_path: Path) -> None:
    configure(tmp_path, free=raw(sandbox=False), trusted=raw(sandbox=False, trust=True))
    async with worker(redis_url, tmp_path) as bench:
        result = await bench.run(model=script(tmp_path, [say("Done.")]), approval_mode="readOnly")
    (error,) = result.errors
    assert "'free' is left out: this delegation is read-only" in error


async def test_the_discovery_command_of_a_read_only_run_changes_nothing(redis_url: str, tmp_path: Path) -> None:
    said = json.dumps([{"name": "greet"}])
    discovery = {"discovery_command": f"touch planted; echo '{said}'", "call_command": "true"}
    async with worker(redis_url, tmp_path, mcp_config=None, tools=discovery) as bench:
        result = await bench.run(model=script(tmp_path, [say("Done.")]), approval_mode="readOnly")
    assert (result.files_modified, result.errors) == ([], [])
