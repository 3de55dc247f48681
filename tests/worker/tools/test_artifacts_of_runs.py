"""Artifacts in a run: offered, handed over with the result, and written only once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deputize.shared.delegation import Artifact
from deputize.shared.errors import NotFound
from deputize.shared.events import RunStarted, StepCompleted
from deputize.shared.request import ApprovalMode, DelegationRequest
from deputize.shared.runs.keys import ledger_key
from deputize.shared.settings import Settings
from deputize.worker.policy import PolicyCall, PolicyContext, decide, denial
from deputize.worker.task import carry_out
from deputize.worker.toolkit.registry import available_tools
from deputize.worker.tools.artifacts import CreateArtifact
from deputize.worker.tools.base import AnyTool, Kind
from deputize.worker.workspace.artifacts import Artifacts
from deputize.worker.workspace.files import Files
from tests.running import Bench, call, open_bench, say, script
from tests.toolbench import EVERYTHING, Toolbench
from tests.waiting import until

FOUR = ("create_artifact", "read_artifact", "update_artifact", "rewrite_artifact")


@pytest.mark.requirement("S003-041", "S003-042", "S003-043", "S003-044")
@pytest.mark.parametrize("name", FOUR)
def test_artifacts_need_nobodys_approval(name: str) -> None:
    tool = EVERYTHING[name]
    assert tool.kind is Kind.THINK
    for mode in ApprovalMode:
        arguments = {"name": "a", "content": "x", "old_string": "a", "new_string": "b"}
        known = {key: value for key, value in arguments.items() if key in tool.schema["properties"]}
        assert denial(decide(PolicyCall(tool, tool.touches(tool.parse(known))), PolicyContext(mode))) is None


@pytest.mark.requirement("S003-022")
async def test_the_tools_are_offered_only_where_something_keeps_artifacts(bare_desk: Toolbench) -> None:
    def kept_elsewhere(files: Files) -> Artifacts:
        files.mkdir("elsewhere")
        return Artifacts(Files(files.root / "elsewhere"))

    without: AnyTool = CreateArtifact(None)
    elsewhere = CreateArtifact(kept_elsewhere)
    assert available_tools(Settings(), [without]) == []
    assert available_tools(Settings(), [elsewhere]) == [elsewhere]
    assert {tool.name for tool in available_tools(Settings())} >= {*FOUR}
    assert not {tool.name for tool in available_tools(Settings.load(environ={}, tools={"enable_artifacts": False}))} & {
        *FOUR
    }
    await elsewhere.run(bare_desk.context(), elsewhere.parse({"name": "a", "content": "x"}))
    assert bare_desk.read("elsewhere/.deputize/artifacts/a/1") == b"x"


@pytest.mark.requirement("S003-022", "S003-041", "S003-044")
async def test_what_a_run_made_is_in_its_result_and_outlives_its_workspace(redis_url: str, tmp_path: Path) -> None:
    key = "sk-" + "1234567890"
    endpoint = {"ANTHROPIC_API_KEY": key}
    async with open_bench(
        redis_url, tmp_path / "home", tools={"enable_artifacts": True}, model_endpoint=endpoint
    ) as bench:
        turns = (
            [call("create_artifact", name="report.md", content=f"The key is {key}.")],
            [call("rewrite_artifact", name="report.md", content="Größe: 漢字\n")],
            [call("create_artifact", name="plan", content="")],
        )
        result = await bench.run(model=script(tmp_path, *turns, [say("Two artifacts.")]))
        assert (result.errors, result.file_changes) == ([], [])
        assert result.artifacts == [
            Artifact(name="plan", version=1, size=0),
            Artifact(name="report.md", version=2, size=len("Größe: 漢字\n".encode())),
        ]
        id = result.delegation_id
        events = [envelope.event for envelope in await bench.events(id)]
        (started,) = [event for event in events if isinstance(event, RunStarted)]
        assert {*FOUR} <= {*started.tools}
        assert [event.step.title for event in events if isinstance(event, StepCompleted)][2] == "create artifact plan"
        assert await bench.store.artifact(id, "report.md") == "Größe: 漢字\n"
        assert await bench.store.artifact(id, "report.md", 1) == "The key is ***."
        assert await bench.store.artifact(id, "plan") == ""
        with pytest.raises(NotFound, match=r"it has plan, report\.md"):
            await bench.store.artifact(id, "raport.md")


async def test_a_limit_hands_over_what_was_made_before_it(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home", tools={"enable_artifacts": True}) as bench:
        made = [call("create_artifact", name="half", content="so far")]
        result = await bench.run(model=script(tmp_path, made, [say("never")]), limits={"max_turns": 1})
        assert (result.success, [each.name for each in result.artifacts]) == (False, ["half"])
        assert await bench.store.artifact(result.delegation_id, "half") == "so far"


async def test_a_run_that_goes_on_elsewhere_makes_no_version_twice(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home", tools={"enable_artifacts": True}) as bench:
        first = [call("create_artifact", name="a", content="one")]
        turns = first, [call("bash", command="exec sleep 1000")], [call("rewrite_artifact", name="a", content="two")]
        id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, *turns, [say("done")])))
        running = asyncio.create_task(carry_out(bench.services, id))
        await until(lambda: bench.store.redis.hexists(ledger_key(id), "call_2_1"), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await carry_out(bench.services, id)
        assert (await bench.result(id)).artifacts == [Artifact(name="a", version=2, size=3)]
        assert [await bench.store.artifact(id, "a", version) for version in (1, 2)] == ["one", "two"]


async def test_without_the_switch_a_run_has_artifacts_only_by_name(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [call("create_artifact", name="a", content="x")], [say("done")])
    assert "there is no tool 'create_artifact'" in (await bench.run(model=model)).errors[0]
    assert (await bench.run(model=model, tools=["*_artifact"])).artifacts == [Artifact(name="a", version=1, size=1)]
