"""002: runs are offered what Tool.define makes, and that design's calls and settings have their place here."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.events import Envelope, RunStarted, StepCompleted, StepStarted
from deputize.worker.adapters import adapt
from deputize.worker.adapters.base_classes import Tool
from deputize.worker.toolkit.registry import Registry, prepare_kit
from deputize.worker.tools import base
from deputize.worker.tools.base import InitContext
from tests.running import call, open_bench, say, script
from tests.worker.adapters.defined_tools import WHAT, Librarian, ServersTool, place_tool, tell_place


@pytest.mark.requirement("S002-022", "S002-023", "S002-024")
async def test_all_tools_are_offered_to_the_model_the_async_ones_made_ready(
    redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def init(ctx: InitContext) -> dict[str, Any]:
        return {"description": "Found out.", "parameters": WHAT, "execute": tell_place}

    tools = [adapt(place_tool), adapt(Tool.define("late", {"name": "Late"}, init))]
    ready = await prepare_kit(Registry(tools).kit(["*"]), InitContext("x"), lambda _: None)
    assert [(each["name"], each["description"]) for each in Registry(ready.values()).declarations()] == [
        ("tell_place", "Tells where it runs."),
        ("late", "Found out."),
    ]
    with caplog.at_level(logging.INFO):
        async with open_bench(redis_url, tmp_path / "home", offered=tools) as bench:
            run = await bench.run(model=script(tmp_path, [say("Done.")]), tools=["*"])
            assert started(await bench.events(run.delegation_id)).tools == ["tell_place", "late"]
    assert "runs are offered 2 tools: tell_place, late" in caplog.text


@pytest.mark.requirement("S000-024")
async def test_a_run_goes_on_without_a_tool_that_cannot_say_what_it_is(redis_url: str, tmp_path: Path) -> None:
    closed = Librarian()
    closed.fails = 1
    tools = [adapt(place_tool), adapt(Tool.define("late", {"name": "Late"}, closed))]
    async with open_bench(redis_url, tmp_path / "home", offered=tools) as bench:
        run = await bench.run(model=script(tmp_path, [say("Done.")]), tools=["*"])
        assert started(await bench.events(run.delegation_id)).tools == ["tell_place"]
    assert run.success
    assert run.errors == ["the tool late could not be initialized: the library is closed"]


@pytest.mark.requirement("S002-014", "S002-036", "S002-037", "S002-047")
async def test_what_that_design_sends_with_a_call_has_its_place_here(redis_url: str, tmp_path: Path) -> None:
    """toolId, arguments, messageId, sessionId go in; success, result and error come out, and a call's life is told."""
    seen: list[base.ToolContext] = []

    class Watching(ServersTool):
        name = "watching"
        origin = base.Origin()

        async def run(self, ctx: base.ToolContext, params: base.Params) -> base.ToolResult:
            seen.append(ctx)
            ctx.metadata("half way", part=1)
            return base.ToolResult("seen")

    model = script(tmp_path, [call("watching")], [call("watching", x=1)], [say("Done.")])
    async with open_bench(redis_url, tmp_path / "home", offered=[Watching()]) as bench:
        result = await bench.run(model=model, tools=["watching"], session_id="s-1", message_id="m-1")
        events = [envelope.event for envelope in await bench.events(result.delegation_id)]
    [context] = seen
    assert (context.session_id, context.message_id) == ("s-1", "m-1")
    assert context.files.root.is_relative_to(tmp_path)  # workingDirectory
    started = [event.step for event in events if isinstance(event, StepStarted)]  # onStepStart
    ended = [event.step for event in events if isinstance(event, StepCompleted)]  # onStepComplete
    assert [step.id for step in started] == [step.id for step in ended]
    assert context.call_id == started[0].id  # toolCallId
    assert [(step.status, step.result, step.error is None) for step in ended] == [
        ("completed", "seen", True),
        ("failed", None, False),
    ]
    assert next(event.model for event in events if isinstance(event, RunStarted)) == model  # providerId
    assert InitContext("x", {"pdf": "Reads PDFs"}).skills == {"pdf": "Reads PDFs"}


@pytest.mark.requirement("S002-079")
async def test_what_that_designs_settings_say_is_said_by_a_request_and_the_workers_settings(
    redis_url: str, tmp_path: Path
) -> None:
    """enableToolCalls, enabled: ``tools`` and switches; autoExecute: the approval mode; toolAgentSettings: limits."""
    write = call("write_file", path="a.txt", content="x")
    model = script(tmp_path, [write], [say("Done.")])
    async with open_bench(redis_url, tmp_path / "home", tools={"enable_bash": False}) as bench:
        asked: list[dict[str, Any]] = [
            {},
            {"tools": []},
            {"tools": ["glob"]},
            {"approval_mode": "ask"},
            {"limits": {"max_tool_calls": 0}},
        ]
        runs = [await bench.run(model=model, **said) for said in asked]
        offers = [started(await bench.events(run.delegation_id)).tools for run in runs[:3]]
    assert "bash" not in offers[0]
    assert offers[1:] == [[], ["glob"]]
    assert [run.files_modified for run in runs] == [["a.txt"], [], [], [], []]
    assert ["there is no tool" in run.errors[0] for run in runs[1:3]] == [True, True]
    assert "needs a person's approval" in runs[3].errors[0]
    assert runs[4].termination_reason == "max_tool_calls"


def started(events: list[Envelope]) -> RunStarted:
    return next(envelope.event for envelope in events if isinstance(envelope.event, RunStarted))
