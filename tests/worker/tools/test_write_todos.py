"""write_todos: a list that is always written as a whole, and shown to people as one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import ErrorType
from deputize.shared.events import StepCompleted
from deputize.shared.request import ApprovalMode
from deputize.worker.policy import PolicyCall, PolicyContext, decide, denial
from deputize.worker.text.output import TodoItem, TodoList
from deputize.worker.tools.base import Kind
from tests.runs.bench import call, open_bench, say, script
from tests.runs.toolbench import EVERYTHING, Toolbench

TODOS = [
    {"description": "Read the tests", "status": "completed"},
    {"description": "Mend the parser", "status": "in_progress"},
    {"description": "Run the tests", "status": "pending"},
    {"description": "Write docs", "status": "cancelled"},
]
LIST = "1. [x] Read the tests\n2. [>] Mend the parser\n3. [ ] Run the tests\n4. [-] Write docs"


@pytest.mark.requirement("S004-024", "S004-037")
async def test_the_list_is_shown_to_the_model_and_to_people_and_kept(bare_desk: Toolbench) -> None:
    tool = EVERYTHING["write_todos"]
    result = await tool.run(bare_desk.context(), tool.parse({"todos": TODOS}))
    assert result.title == "todo list: 1 of 4 done"
    assert result.content.splitlines()[1:] == LIST.splitlines()
    assert isinstance(result.display, TodoList)
    assert result.display.items[1] == TodoItem("Mend the parser", "in_progress")
    assert str(result.display) == LIST
    assert result.metadata == {"total": 4, "completed": 1, "in_progress": 1, "pending": 1, "cancelled": 1}
    assert json.loads(bare_desk.read(".deputize/todos.json")) == TODOS


async def test_the_next_list_replaces_the_one_before(bare_desk: Toolbench) -> None:
    await bare_desk.call("write_todos", todos=TODOS)
    result = await bare_desk.call("write_todos", todos=[{"content": "Rest\n a while", "status": "pending"}])
    assert result.display == "1. [ ] Rest a while"
    assert json.loads(bare_desk.read(".deputize/todos.json")) == [{"description": "Rest a while", "status": "pending"}]
    empty = await bare_desk.call("write_todos", todos=[])
    assert (empty.content, empty.title) == ("The todo list is empty now.", "clear the todo list")
    assert bare_desk.read(".deputize/todos.json") == b"[]"


@pytest.mark.parametrize(
    ("todos", "said"),
    [
        (
            [{"description": "a", "status": "in_progress"}] * 2,
            "todos: 1, 2 are all in_progress; at most one may be, set the others to pending",
        ),
        ([{"description": "a", "status": "done"}], "todos/0/status: Input should be 'pending', 'in_progress'"),
        ([{"description": "", "status": "pending"}], "todos/0/description: "),
        ([{"description": " \n\t", "status": "pending"}], "todos/0/description: "),
        ([{"description": "\u200b \u00a0", "status": "pending"}], "todos/0/description: "),
        ([{"status": "pending"}], "todos/0/description: Field required"),
        (["read"], "todos/0: "),
        ([{"description": "a", "status": "pending"}] * 101, "todos: List should have at most 100 items"),
    ],
)
async def test_a_wrong_list_is_refused_and_the_old_one_stays(bare_desk: Toolbench, todos: Any, said: str) -> None:
    await bare_desk.call("write_todos", todos=TODOS)
    assert said in await bare_desk.refusal(ErrorType.INVALID_TOOL_PARAMS, "write_todos", todos=todos)
    assert json.loads(bare_desk.read(".deputize/todos.json")) == TODOS


@pytest.mark.requirement("S004-024")
def test_planning_needs_nobodys_approval() -> None:
    tool = EVERYTHING["write_todos"]
    view = PolicyCall(tool, tool.touches(tool.parse({"todos": TODOS})))
    assert tool.kind is Kind.THINK
    assert all(denial(decide(view, PolicyContext(mode))) is None for mode in ApprovalMode)


@pytest.mark.requirement("S004-037")
async def test_followers_read_the_list_as_text_and_it_is_no_change_of_files(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home", tools={"enable_todos": True}) as bench:
        model = script(tmp_path, [call("write_todos", todos=TODOS)], [say("Planned.")])
        result = await bench.run(model=model)
        assert (result.errors, result.file_changes) == ([], [])
        events = [envelope.event for envelope in await bench.events(result.delegation_id)]
        (step,) = [event.step for event in events if isinstance(event, StepCompleted)]
        assert (step.title, step.result) == ("todo list: 1 of 4 done", LIST)
