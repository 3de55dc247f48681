"""Which tool of a kit a call names: by its name, an alias, or as the editors of other agents name it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...shared.errors import ErrorType, ToolError
from ..models.base import Call
from ..schemas.arguments import unknown_tool
from .base import AnyTool

_EDITORS = ("str_replace_based_edit_tool", "str_replace_editor", "text_editor")
_EDITOR_COMMANDS = ("view", "create", "str_replace")


def find_tool(kit: Mapping[str, AnyTool], name: str) -> AnyTool:
    """Returns the tool of that name or alias. Raises ToolError(UNKNOWN_TOOL) with the closest names."""
    if found := _named(kit, name):
        return found
    if name in _EDITORS and "edit_file" in kit:
        raise ToolError(
            ErrorType.UNKNOWN_TOOL,
            f"there is no tool {name!r} with this command. Use read_file, write_file or edit_file. To insert a text "
            "with edit_file give the line before it as old_string, and this line with the text as new_string.",
        )
    raise unknown_tool(name, kit)


def call_names(kit: Mapping[str, AnyTool]) -> list[str]:
    """Returns all names by which a call may name a tool of the kit."""
    return [name for tool in kit.values() for name in (tool.name, *tool.aliases)] + list(_EDITORS)


def own_call(kit: Mapping[str, AnyTool], call: Call) -> Call:
    """Returns the call with our name of its tool. The text editors of other agents name a tool as their command."""
    if call.name in _EDITORS and call.name not in kit and call.arguments.get("command") in _EDITOR_COMMANDS:
        others = {key: value for key, value in call.arguments.items() if key != "command"}
        call = replace(call, name=call.arguments["command"], arguments=others)
    tool = _named(kit, call.name)
    return replace(call, name=tool.name) if tool else call


def _named(kit: Mapping[str, AnyTool], name: str) -> AnyTool | None:
    return kit.get(name) or next((tool for tool in kit.values() if name in tool.aliases), None)
