"""What models write for a value, and what the tools take it for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import Field

from deputize.shared.errors import ErrorType, ToolError
from deputize.worker.tools.base import Effect, Kind, Tool, ToolContext, ToolResult, Touches
from deputize.worker.tools.params import Params, WorkspacePath
from tests.runs.toolbench import EVERYTHING

TODO = {"description": "a", "status": "pending"}


@pytest.mark.parametrize(
    ("tool", "given", "name", "value"),
    [
        ("grep", {"pattern": "x", "ignore_case": "true"}, "ignore_case", True),
        ("grep", {"pattern": "x", "context": "3"}, "context", 3),
        ("grep", {"pattern": "x", "max_results": 10.0}, "max_results", 10),
        ("grep", {"pattern": "x", "type": None}, "type", None),
        ("read_many_files", {"paths": "a.py"}, "paths", ["a.py"]),
        ("read_many_files", {"paths": '["a.py", "b.py"]'}, "paths", ["a.py", "b.py"]),
        ("read_many_files", {"paths": "[slug].tsx"}, "paths", ["[slug].tsx"]),
        ("call_subagent", {"task": "x", "tools": "grep"}, "tools", ["grep"]),
    ],
)
def test_what_can_mean_only_one_thing_is_taken_for_it(tool: str, given: dict[str, Any], name: str, value: Any) -> None:
    assert getattr(EVERYTHING[tool].parse(given), name) == value


def test_a_list_may_come_as_json() -> None:
    params = EVERYTHING["write_todos"].parse({"todos": json.dumps([TODO])})
    assert params.model_dump() == {"todos": [TODO]}


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("grep", {"pattern": ["x"]}),
        ("grep", {"pattern": 42}),
        ("grep", {"pattern": "x", "context": "three"}),
        ("read_many_files", {"paths": 5}),
        ("write_todos", {"todos": "read the tests"}),
        ("write_todos", {"todos": "[" * 10_000}),
    ],
)
def test_all_else_is_refused(tool: str, given: dict[str, Any]) -> None:
    with pytest.raises(ToolError) as caught:
        EVERYTHING[tool].parse(given)
    assert caught.value.type is ErrorType.INVALID_TOOL_PARAMS


class Ways(Params):
    source: WorkspacePath
    targets: list[WorkspacePath] | None = None
    backup: WorkspacePath | None = Field(default=None, min_length=1)
    word: str = ""


class Copying(Tool[Ways]):
    """Copies a file."""

    name = "copying"
    kind = Kind.EDIT
    params = Ways

    async def run(self, ctx: ToolContext, params: Ways) -> ToolResult:
        return ToolResult(params.source)


def test_a_call_touches_the_paths_among_its_parameters() -> None:
    tool = Copying()
    call = tool.parse({"source": "a", "targets": ["b", "c"], "backup": "d", "word": "e"})
    assert tool.touches(call) == Touches(paths=("a", "b", "c", "d"))
    assert tool.touches(tool.parse({"source": "a"})) == Touches(paths=("a",))


def test_a_tool_that_declares_no_effect_has_that_of_its_kind() -> None:
    class Looking(Copying):
        kind = Kind.READ

    class Certain(Looking):
        kind = Kind.EDIT
        effect = Effect.IDEMPOTENT

    class Same(Certain):
        pass

    found = [tool.effect for tool in (Copying, Looking, Certain, Same)]
    assert found == [Effect.EFFECTFUL, Effect.PURE, Effect.IDEMPOTENT, Effect.IDEMPOTENT]
