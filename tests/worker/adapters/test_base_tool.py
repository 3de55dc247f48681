"""003: a tool with listed parameters and a permission runs here as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deputize.shared.request import ApprovalMode
from deputize.worker.adapters import adapt
from deputize.worker.adapters.declarations import BaseToolResult, ToolPermission
from tests.runs.asking import answered, asking_bench, begun, questions
from tests.runs.bench import call, say, script
from tests.worker.adapters.playing import Theatre
from tests.worker.adapters.seed_classes import BaseTool, ToolParameter

PAGES = ["one", "two", "three"]


class BookSearchTool(BaseTool):
    """As that design writes tools."""

    def __init__(self, permission: ToolPermission = ToolPermission.AUTO, **config: Any) -> None:
        super().__init__("book_search", "Searches the book.", permission, **config)

    def get_parameters(self) -> list[ToolParameter]:
        return [
            ToolParameter("query", "string", "What to look for"),
            ToolParameter("max_results", "integer", "How many", required=False, default=10),
        ]

    async def execute(self, **params: Any) -> BaseToolResult:
        try:
            found = [page for page in PAGES if params["query"] in page][: params.get("max_results", 10)]
            if not found:
                raise LookupError(f"nothing about {params['query']}")
            return BaseToolResult(success=True, data=found, metadata={"count": len(found)})
        except LookupError as error:
            return BaseToolResult(success=False, error=str(error))


@pytest.mark.requirement("S003-005", "S003-009", "S003-013")
async def test_it_runs_in_the_loop_like_one_of_ours(theatre: Theatre) -> None:
    play = await theatre.play(
        [adapt(BookSearchTool())], {"query": "o"}, {"query": "o", "max_results": 1}, {"query": "z"}, {"qery": "o"}
    )
    all_pages, one, none, misspelt = play.steps
    assert [all_pages.result, one.result] == ['["one", "two"]', '["one"]']
    assert (none.status, none.error) == ("failed", "nothing about z")
    assert misspelt.error is not None
    assert "'qery' was unexpected" in misspelt.error
    assert '"query" is a required property' in misspelt.error
    assert play.result.success


@pytest.mark.requirement("S003-008")
@pytest.mark.parametrize(
    ("permission", "mode", "error"),
    [
        (ToolPermission.AUTO, "ask", None),
        (ToolPermission.CONFIRM, "auto", None),
        (ToolPermission.CONFIRM, "sandboxed", "denied: book_search"),
        (ToolPermission.AUTO, "readOnly", "denied: this delegation is read-only"),
    ],
)
async def test_auto_needs_no_answer_and_confirm_needs_one(
    theatre: Theatre, permission: ToolPermission, mode: str, error: str | None
) -> None:
    tool = BookSearchTool(permission, engine="slow")
    assert (tool.name, tool.permission, tool.config) == ("book_search", permission, {"engine": "slow"})
    play = await theatre.play([adapt(tool)], {"query": "one"}, approval_mode=mode)
    assert (play.steps[0].error or "").startswith(error or "")
    assert (play.steps[0].status == "completed") == (error is None)


@pytest.mark.requirement("S003-010", "S003-011", "S003-012")
async def test_calling_it_validates_and_then_executes() -> None:
    tool = BookSearchTool()
    assert await tool(query="three") == BaseToolResult(True, ["three"], None, {"count": 1})
    assert tool.validate_params({"query": "three"}) is None
    refused = await tool(qery="three")
    assert (refused.success, refused.error) == (False, tool.validate_params({"qery": "three"}))
    assert refused.error is not None
    assert '"query" is a required property' in refused.error
    assert "'qery' was unexpected" in refused.error


@pytest.mark.requirement("S003-010")
async def test_a_tools_own_validation_is_asked_as_well(theatre: Theatre) -> None:
    class Picky(BookSearchTool):
        def validate_params(self, params: Any) -> str | None:
            if params["query"] == "crash":
                raise RuntimeError("cannot decide")
            return "ask for less" if params.get("max_results", 0) > 5 else None

    play = await theatre.play([adapt(Picky())], {"query": "one", "max_results": 6}, {"query": "crash"}, {})
    assert [step.error for step in play.steps[:2]] == [
        "ask for less",
        "invalid arguments for book_search: cannot decide",
    ]
    assert (await Picky()(query="one", max_results=6)).error == "ask for less"


@pytest.mark.requirement("S003-007")
def test_a_result_is_a_mapping_too() -> None:
    assert BaseToolResult(True, [1]).to_dict() == {"success": True, "data": [1], "error": None, "metadata": {}}


@pytest.mark.requirement("S003-009")
def test_a_tool_without_parameters_or_work_is_none() -> None:
    with pytest.raises(TypeError, match=r"execute.*get_parameters"):
        BaseTool("x", "y")  # pyright: ignore[reportAbstractUsage]


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
