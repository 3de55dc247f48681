"""Which tools a run gets, by which names they are called, and what a tool is."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field

from deputize.shared.errors import ErrorType, Invalid, ToolError
from deputize.worker.models.base import Call
from deputize.worker.toolkit.registry import Registry, tool_cards
from deputize.worker.tools.base import Effect, Kind, Params, Tool, ToolContext, ToolResult
from deputize.worker.tools.builtin import BUILTIN, DEFAULT_KIT
from deputize.worker.tools.naming import find_tool, own_call
from tests.runs.toolbench import EVERYTHING


@pytest.mark.requirement("S000-001", "S001-001", "S001-002")
def test_the_default_kit_is_small() -> None:
    assert tuple(Registry(BUILTIN).kit(None)) == DEFAULT_KIT
    assert len(DEFAULT_KIT) <= 9


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["read_file"], ["read_file"]),
        (["bash", "read_file", "read_file"], ["read_file", "bash"]),
        (["*_file"], ["read_file", "write_file", "edit_file"]),
        (["ls", "run_shell_command"], ["bash", "list_directory"]),
        (["Read", "Bash", "LS", "TodoWrite"], ["read_file", "bash", "list_directory", "write_todos"]),
        (["g[lr]*"], ["glob", "grep"]),
        (["*"], [name for name, tool in EVERYTHING.items() if not tool.availability.by_name_only]),
        ([], []),
    ],
)
def test_names_aliases_and_patterns_choose_tools_in_the_order_of_the_list(
    patterns: list[str], names: list[str]
) -> None:
    assert list(Registry(BUILTIN).kit(patterns)) == names


@pytest.mark.requirement("S001-032")
def test_each_unknown_name_is_refused_at_its_place_with_close_ones() -> None:
    with pytest.raises(Invalid) as caught:
        Registry(BUILTIN).kit(["read_file", "grpe", "glob", "quux*"])
    assert caught.value.errors == [
        {"pointer": "/tools/1", "detail": "no tool is called 'grpe'; did you mean grep?"},
        {"pointer": "/tools/3", "detail": f"no tool is called 'quux*'; there are {', '.join(EVERYTHING)}"},
    ]


def test_a_misspelt_alias_is_answered_with_the_name_that_the_list_of_tools_shows() -> None:
    with pytest.raises(Invalid, match=r"no tool is called 'edti'; did you mean edit_file or read_file\?"):
        Registry(BUILTIN).kit(["edti"])


def test_a_tool_answers_to_its_name_and_its_aliases() -> None:
    kit = EVERYTHING
    for tool in kit.values():
        for name in (tool.name, *tool.aliases):
            assert find_tool(kit, name) is tool
    names = [name for tool in BUILTIN for name in (tool.name, *tool.aliases)]
    assert len(names) == len(set(names))
    assert {"read", "write", "edit", "replace", "run_shell_command", "ls"} <= set(names)


OTHERS: list[tuple[str, dict[str, object], str, dict[str, object]]] = [
    ("Read", {"file_path": "a", "offset": 2, "limit": 3}, "read_file", {"path": "a", "offset": 2, "limit": 3}),
    ("view", {"path": "a", "view_range": [5, 9]}, "read_file", {"path": "a", "offset": 5, "limit": 5}),
    ("view", {"path": "a", "view_range": [5, -1]}, "read_file", {"path": "a", "offset": 5, "limit": 0}),
    ("Write", {"file_path": "a", "content": "x"}, "write_file", {"path": "a", "content": "x"}),
    ("create", {"path": "a", "file_text": "x"}, "write_file", {"path": "a", "content": "x"}),
    (
        "Edit",
        {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": True},
        "edit_file",
        {"path": "a", "old_string": "x", "new_string": "y", "replace_all": True},
    ),
    ("edit", {"filePath": "a", "oldString": "x", "newString": "y"}, "edit_file", {"old_string": "x"}),
    ("str_replace", {"path": "a", "old_str": "x", "new_str": "y"}, "edit_file", {"new_string": "y"}),
    (
        "Bash",
        {"command": "ls", "description": "Lists files", "timeout": 9, "run_in_background": True},
        "bash",
        {"command": "ls", "timeout": 9, "run_in_background": True},
    ),
    ("run_shell_command", {"command": "ls", "description": "x", "is_background": False}, "bash", {"command": "ls"}),
    ("BashOutput", {"bash_id": "x"}, "bash_output", {"bash_id": "x"}),
    ("KillShell", {"shell_id": "x"}, "bash_kill", {"bash_id": "x"}),
    ("Glob", {"pattern": "*", "path": "a"}, "glob", {"pattern": "*", "path": "a"}),
    (
        "Grep",
        {"pattern": "x", "output_mode": "files_with_matches", "-i": True, "-n": True, "-C": 2, "head_limit": 5},
        "grep",
        {"pattern": "x", "output_mode": "files", "ignore_case": True, "context": 2, "max_results": 5},
    ),
    ("grep_search", {"query": "x", "include_pattern": "*.py"}, "grep", {"pattern": "x", "glob": "*.py"}),
    ("LS", {"path": "a"}, "list_directory", {"path": "a"}),
    ("WebFetch", {"url": "https://example.org", "prompt": "What?"}, "web_fetch", {"url": "https://example.org"}),
    ("WebSearch", {"query": "x"}, "web_search", {"query": "x"}),
    ("Task", {"prompt": "Do it", "description": "doing"}, "call_subagent", {"task": "Do it"}),
    ("Skill", {"skill": "pdf"}, "get_skill", {"skill_name": "pdf"}),
    ("str_replace_based_edit_tool", {"command": "view", "path": "a"}, "read_file", {"path": "a"}),
    ("str_replace_editor", {"command": "create", "path": "a", "file_text": "x"}, "write_file", {"content": "x"}),
    (
        "str_replace_based_edit_tool",
        {"command": "str_replace", "path": "a", "old_str": "x", "new_str": "y"},
        "edit_file",
        {"old_string": "x", "new_string": "y"},
    ),
]


@pytest.mark.parametrize(("name", "given", "ours", "arguments"), OTHERS)
def test_a_call_in_the_words_of_another_agent_is_one_of_ours(
    name: str, given: dict[str, Any], ours: str, arguments: dict[str, Any]
) -> None:
    call = own_call(EVERYTHING, Call("1", name, given, key="key"))
    assert (call.id, call.name, call.key) == ("1", ours, "key")
    params = find_tool(EVERYTHING, call.name).parse(call.arguments)
    assert {key: getattr(params, key) for key in arguments} == arguments


def test_a_todo_list_in_the_words_of_another_agent_is_one_of_ours() -> None:
    todo = {"content": "Test", "status": "pending", "activeForm": "Testing", "id": "1", "priority": "high"}
    params = find_tool(EVERYTHING, "TodoWrite").parse({"todos": [todo]})
    assert [(each.description, each.status) for each in params.todos] == [("Test", "pending")]


@pytest.mark.parametrize("name", ["insert", "undo_edit", "bash", None])
def test_what_the_editor_of_another_agent_does_besides_is_answered_with_our_tools(name: str | None) -> None:
    call = own_call(EVERYTHING, Call("1", "str_replace_based_edit_tool", {"command": name, "path": "a"}))
    with pytest.raises(ToolError, match="edit_file"):
        find_tool(EVERYTHING, call.name)


def test_a_tool_that_has_such_a_name_itself_is_called() -> None:
    kit = {"Read": EVERYTHING["bash"], "str_replace_editor": EVERYTHING["glob"], **EVERYTHING}
    assert own_call(kit, Call("1", "Read", {})).name == "bash"
    assert own_call(kit, Call("1", "str_replace_editor", {"command": "view"})).name == "glob"


@pytest.mark.parametrize(("tool", "given"), [("bash", {"id": "1"}), ("write_file", {"description": "x"})])
def test_what_no_tool_of_that_kind_takes_is_still_refused(tool: str, given: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match=f"{next(iter(given))}: "):
        find_tool(EVERYTHING, tool).parse({"command": "ls"} | given if tool == "bash" else given)


@pytest.mark.parametrize(
    ("name", "hint"), [("read_fil", "Did you mean read_file?"), ("quux", "Available tools: read_file, bash.")]
)
def test_an_unknown_tool_is_answered_with_what_there_is(name: str, hint: str) -> None:
    with pytest.raises(ToolError) as caught:
        find_tool(Registry(BUILTIN).kit(["read_file", "bash"]), name)
    assert caught.value.type is ErrorType.UNKNOWN_TOOL
    assert caught.value.message == f"there is no tool '{name}' in this run. {hint}"


def test_a_tool_left_out_of_the_kit_is_unknown_by_its_alias_too() -> None:
    with pytest.raises(ToolError):
        find_tool(Registry(BUILTIN).kit(["bash"]), "read")


@pytest.mark.requirement("S000-004", "S001-003")
def test_the_cards_say_what_the_fleet_announces() -> None:
    announced = {card.name: card for card in tool_cards(BUILTIN)}
    assert list(announced) == list(EVERYTHING)
    card = announced["read_file"]
    assert (card.kind, card.effect, card.source) == ("read", "pure", "builtin")
    assert card.parameters == EVERYTHING["read_file"].schema
    assert "read" in card.aliases


@pytest.mark.requirement("S000-002", "S000-033", "S003-006", "S004-036")
def test_one_result_has_a_face_for_the_model_one_for_people_and_one_for_programs() -> None:
    good = ToolResult("text", title="did it", display="<diff>", data={"n": 1}, metadata={"k": "v"})
    assert (good.success, good.error, good.for_model) == (True, None, "text")
    assert (good.title, good.display, good.data, good.metadata) == ("did it", "<diff>", {"n": 1}, {"k": "v"})
    bad = ToolResult.failed(ToolError(ErrorType.TIMEOUT, "too slow"), "so far")
    assert (bad.success, bad.error, bad.error_type) == (False, "too slow", ErrorType.TIMEOUT)
    assert bad.for_model == "Error: too slow\nso far"
    assert ToolResult().for_model == "(no output)"


@pytest.mark.requirement("S000-108")
def test_a_failure_towards_the_model_begins_with_error() -> None:
    assert ToolResult.failed(ToolError(ErrorType.NOT_TEXT, "no text")).for_model == "Error: no text"


@pytest.mark.requirement("S004-038")
def test_values_of_error_types_are_their_names() -> None:
    assert all(each.value == each.name for each in ErrorType)
    named = "FILE_NOT_FOUND PERMISSION_DENIED INVALID_TOOL_PARAMS EXECUTION_FAILED DISCOVERED_TOOL_EXECUTION_ERROR"
    assert set(named.split()) <= {each.name for each in ErrorType}


class Inner(Params):
    deep: int = Field(description="A number in a model in a model.")


class EchoParams(Params):
    input: str = Field(description="What to say.")
    inner: Inner | None = Field(default=None, description="More.")


class Echo(Tool[EchoParams]):
    """Returns its argument: the smallest tool there can be."""

    name = "echo"
    kind = Kind.THINK
    effect = Effect.PURE
    params = EchoParams

    async def run(self, ctx: ToolContext, params: EchoParams) -> ToolResult:
        return ToolResult(f"Processed: {params.input}")


@pytest.mark.requirement("S000-026", "S001-013")
def test_a_tool_of_ones_own_is_a_name_a_docstring_a_params_model_a_kind_and_run() -> None:
    echo: Tool[Any] = Echo()
    assert list(Registry([*BUILTIN, echo]).kit(["echo"])) == ["echo"]
    assert echo.description == "Returns its argument: the smallest tool there can be."
    assert echo.schema == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "input": {"type": "string", "description": "What to say."},
            "inner": {
                "anyOf": [
                    {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {"deep": {"type": "integer", "description": "A number in a model in a model."}},
                        "required": ["deep"],
                    },
                    {"type": "null"},
                ],
                "default": None,
                "description": "More.",
            },
        },
        "required": ["input"],
    }


@pytest.mark.parametrize("inner", ["text", 5, [1], {"deep": None}, {"deep": float("nan")}])
def test_wrong_values_deep_inside_are_refused_and_not_raised(inner: object) -> None:
    with pytest.raises(ToolError) as caught:
        Echo().parse({"input": "x", "inner": inner})
    assert caught.value.type is ErrorType.INVALID_TOOL_PARAMS
    assert "inner" in caught.value.message


def test_what_the_model_wrote_wrongly_is_not_repeated_at_length() -> None:
    with pytest.raises(ToolError) as caught:
        Echo().parse({"x" * 100_000: 1})
    assert len(caught.value.message) < 3000
    with pytest.raises(ToolError) as caught:
        find_tool(EVERYTHING, "x" * 100_000)
    assert len(caught.value.message) < 500


@pytest.mark.requirement("S003-011")
def test_missing_unknown_and_wrong_arguments_are_all_named_at_once() -> None:
    with pytest.raises(ToolError) as caught:
        Echo().parse({"imput": "x", "inner": {"deep": "three"}})
    said = caught.value.message
    assert caught.value.type is ErrorType.INVALID_TOOL_PARAMS
    assert "input: Field required" in said
    assert "unknown key 'imput'; did you mean 'input'?" in said
    assert "inner/deep: Input should be a valid integer" in said
    assert said.endswith("Known parameters: input, inner.")


def test_the_names_of_kinds_are_those_that_policies_and_watchers_know() -> None:
    kinds = {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other"}
    assert {kind.value for kind in Kind} == kinds == {kind.name.lower() for kind in Kind}


@pytest.mark.parametrize("command", ["insert", "undo_edit", None])
def test_a_command_of_another_editor_that_has_no_tool_here_gets_a_way_on(command: str | None) -> None:
    call = Call("1", "str_replace_editor", {"command": command, "path": "a", "insert_line": 1, "new_str": "x"})
    assert own_call(EVERYTHING, call) == call
    with pytest.raises(ToolError, match=r"Use read_file, write_file or edit_file\. To insert a text with edit_file"):
        find_tool(EVERYTHING, call.name)
    with pytest.raises(ToolError, match="Available tools: bash"):
        find_tool({"bash": EVERYTHING["bash"]}, "str_replace_editor")
