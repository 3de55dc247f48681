"""What is known of a call that a lost worker left open, and what becomes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.connection import Pipe
from deputize.shared.request import EmptyWorkspace
from deputize.shared.runs.keys import ledger_key
from deputize.shared.runs.store import RunStore
from deputize.worker.core.emit import Emitter
from deputize.worker.core.ledger import Ledger
from deputize.worker.redis_record import RedisRecord
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.tools.base import AnyTool, ToolResult
from deputize.worker.tools.builtin import BUILTIN
from deputize.worker.tools.context import ToolContext
from deputize.worker.workspace.workspace import Workspace
from tests.waiting import until
from tests.worker.claimed import claimed

TOOLS = {tool.name: tool for tool in BUILTIN}


class Desk:
    """A ledger over a claimed run, and the context its calls have."""

    def __init__(self, store: RunStore, pipe: Pipe, context: ToolContext, claim: Any) -> None:
        self.store, self.context, self.claim = store, context, claim
        self.emitter = Emitter(RedisRecord(pipe), claim, [], lambda: None)
        self.ledger = Ledger(self.emitter, {})

    async def kept(self) -> dict[str, str]:
        return await self.store.redis.hgetall(ledger_key(self.claim.id))

    async def after_a_crash(self) -> Ledger:
        await self.emitter.settled()
        return Ledger(self.emitter, await self.kept())

    async def begin(self, name: str, **arguments: Any) -> tuple[AnyTool, Any]:
        tool = TOOLS[name]
        params = tool.parse(arguments)
        await self.ledger.start("c1", tool, params, self.context)
        return tool, params

    async def settled(self, tool: AnyTool, params: Any) -> ToolResult | None:
        return await (await self.after_a_crash()).resolve("c1", tool, params, self.context)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    await Bubblewrap.selftest()
    async with claimed() as (store, pipe, claim):
        workspace = await Workspace.create(EmptyWorkspace(), claim.id, tmp_path)
        with Bubblewrap(workspace.path, status_folder=workspace.status_folder) as sandbox:
            context = ToolContext(delegation_id=claim.id, call_id="c1", files=workspace.files, sandbox=sandbox)
            yield Desk(store, pipe, context, claim)
        workspace.close()


async def test_a_finished_call_is_answered_as_before(desk: Desk) -> None:
    tool, params = await desk.begin("write_file", path="a.txt", content="x")
    result = await tool.run(desk.context, params)
    desk.ledger.finish("c1", result)
    again = (await desk.after_a_crash()).finished("c1")
    assert again is not None
    assert again.for_model == result.for_model


async def test_a_call_that_was_only_asked_is_executed(desk: Desk) -> None:
    tool = TOOLS["bash"]
    assert await desk.settled(tool, tool.parse({"command": "true"})) is None


@pytest.mark.parametrize("arguments", [{}, {"run_in_background": True}])
@pytest.mark.parametrize("kept", [{}, {"c1": '{"state": "asked"}'}, {"c1": '{"state": "waits"}'}])
async def test_a_mark_that_is_ahead_of_the_record_is_in_doubt(
    desk: Desk, kept: dict[str, str], arguments: dict[str, bool]
) -> None:
    """As after a restart of Redis with an older state: the worker, or the next one, comes to the same call again."""
    tool, params = await desk.begin("bash", command="echo once >> log.txt", **arguments)
    await tool.run(desk.context, params)
    settled = await Ledger(desk.emitter, kept).resolve("c1", tool, params, desk.context)
    assert settled is not None
    assert "outcome unknown: this call had begun before Redis lost" in (settled.error or "")
    assert await Ledger(desk.emitter, kept).resolve("c2", tool, params, desk.context) is None
    await desk.context.sandbox.shells.end()


async def test_a_command_that_ran_to_its_end_is_not_run_again(desk: Desk) -> None:
    tool, params = await desk.begin("bash", command="echo once >> log.txt")
    await tool.run(desk.context, params)
    settled = await desk.settled(tool, params)
    assert settled is not None
    assert settled.success
    assert "exit code 0" in settled.content


async def test_a_command_that_failed_is_reported_as_failed(desk: Desk) -> None:
    tool, params = await desk.begin("bash", command="exit 3")
    await tool.run(desk.context, params)
    settled = await desk.settled(tool, params)
    assert settled is not None
    assert "exit code 3" in (settled.error or "")


async def test_a_command_that_never_began_is_executed(desk: Desk) -> None:
    tool, params = await desk.begin("bash", command="true")
    assert await desk.settled(tool, params) is None


async def test_a_command_that_was_cut_off_is_in_doubt(desk: Desk) -> None:
    tool, params = await desk.begin("bash", command="sleep 100", timeout=1)
    await tool.run(desk.context, params)
    settled = await desk.settled(tool, params)
    assert settled is not None
    assert "outcome unknown" in (settled.error or "")


@pytest.mark.parametrize("code", [125, 137])
async def test_an_end_that_the_loss_of_the_worker_may_have_made_is_in_doubt(desk: Desk, code: int) -> None:
    tool, params = await desk.begin("bash", command=f"exit {code}")
    await tool.run(desk.context, params)
    settled = await desk.settled(tool, params)
    assert settled is not None
    assert "outcome unknown" in (settled.error or "")


async def test_a_background_command_died_with_its_worker_and_is_in_doubt(desk: Desk) -> None:
    """However far it had come: it is not started a second time unasked."""
    tool, params = await desk.begin("bash", command="touch begun; exec sleep 100", run_in_background=True)
    await tool.run(desk.context, params)
    await until(lambda: desk.context.files.stat("begun"), timeout=20)
    await desk.context.sandbox.shells.end()
    settled = await desk.settled(tool, params)
    assert settled is not None
    assert "outcome unknown" in (settled.error or "")


async def test_a_background_command_that_never_began_is_started(desk: Desk) -> None:
    tool, params = await desk.begin("bash", command="sleep 100", run_in_background=True)
    assert await desk.settled(tool, params) is None


async def test_an_edit_is_recognized_by_the_file_itself(desk: Desk) -> None:
    desk.context.files.write("a.txt", b"one\n")
    tool, params = await desk.begin("edit_file", path="a.txt", old_string="one", new_string="one one")
    assert await desk.settled(tool, params) is None
    await tool.run(desk.context, params)
    settled = await desk.settled(tool, params)
    assert settled is not None
    assert settled.success
    desk.context.files.write("a.txt", b"somebody else\n")
    settled = await desk.settled(tool, params)
    assert settled is not None
    assert "outcome unknown" in (settled.error or "")


async def test_an_answered_turn_empties_the_ledger(desk: Desk) -> None:
    tool, params = await desk.begin("write_file", path="a.txt", content="x")
    desk.ledger.finish("c1", await tool.run(desk.context, params))
    desk.ledger.clear()
    assert (await desk.after_a_crash()).finished("c1") is None


async def test_reading_is_simply_done_again(desk: Desk) -> None:
    tool = TOOLS["read_file"]
    params = tool.parse({"path": "a.txt"})
    await desk.ledger.start("c1", tool, params, desk.context)
    assert await desk.settled(tool, params) is None


async def test_that_a_call_begins_is_kept_before_it_can_have_an_effect(desk: Desk) -> None:
    await desk.begin("bash", command="true")
    assert list(await desk.kept()) == ["c1"]


async def test_of_a_call_that_only_reads_nothing_is_kept_and_nothing_is_waited_for(desk: Desk) -> None:
    tool, params = await desk.begin("read_file", path="a.txt")
    await desk.emitter.settled()
    assert await desk.kept() == {}
    started = Ledger(desk.emitter, {"c1": '{"state": "started", "facts": {}}'})
    assert await started.resolve("c1", tool, params, desk.context) is None


async def test_an_answered_turn_is_forgotten_by_the_attempt_that_took_it_over(desk: Desk) -> None:
    tool, params = await desk.begin("write_file", path="a.txt", content="x")
    desk.ledger.finish("c1", await tool.run(desk.context, params))
    again = await desk.after_a_crash()
    assert again.finished("c1") is not None
    again.clear()
    assert again.finished("c1") is None
