"""The two levels of permission that a tool of the ``BaseTool`` style declares, in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deputize.shared.request import ApprovalMode
from deputize.worker.adapters import adapt
from deputize.worker.adapters.base_classes import BaseTool, BaseToolResult, ToolPermission
from tests.asking import answered, asking_bench, begun, questions
from tests.running import call, say, script


class Counter(BaseTool):
    """Counts its calls."""

    calls = 0

    def get_parameters(self) -> list[Any]:
        return []

    async def execute(self, **params: Any) -> BaseToolResult:
        self.calls += 1
        return BaseToolResult(True, data=self.calls)


@pytest.mark.requirement("S003-002")
@pytest.mark.parametrize(("outcome", "confirmed"), [("proceed_once", 1), ("cancel", 0)])
async def test_auto_runs_at_once_and_confirm_only_after_a_persons_answer(
    redis_url: str, tmp_path: Path, outcome: str, confirmed: int
) -> None:
    auto = Counter("auto_tool", "runs without a question", ToolPermission.AUTO)
    confirm = Counter("confirm_tool", "waits for an answer", ToolPermission.CONFIRM)
    offered = [adapt(auto), adapt(confirm)]
    async with asking_bench(redis_url, tmp_path / "home", offered=offered) as bench:
        model = script(tmp_path, [call("auto_tool")], [call("confirm_tool")], [say("done")])
        _, run = await begun(bench, model, approval_mode=ApprovalMode.SANDBOXED, tools=["auto_tool", "confirm_tool"])
        (request,) = await questions(bench)
        assert (request.step.tool_name, auto.calls, confirm.calls) == ("confirm_tool", 1, 0)
        await answered(bench, request, outcome)
        await run
    assert (auto.calls, confirm.calls) == (1, confirmed)
