"""Tools written in the style of another design run here unchanged; each design has a file.

What they have in common stands in ``foreign.py``, how they declare parameters in ``parameters.py``. A worker is given
them like its own: ``main(tools=(*BUILTIN, adapted(tool)))``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from worker.adapters.base_tool import AdaptedBaseTool, ListingTool
from worker.adapters.builder import AdaptedBuilder, ToolBuilder
from worker.adapters.execute_kwargs import AdaptedPlain, PlainTool
from worker.adapters.function_table import AdaptedEntry, Entry, adapted_table
from worker.adapters.tool_define import AdaptedInfo, AdaptedInfoAsync, ToolInfo, ToolInfoAsync
from worker.tools.base import AnyTool, Effect, Kind, Tool

__all__ = ["AdaptedEntry", "Entry", "adapted", "adapted_table", "convert_tools"]


def adapted(tool: object, *, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> AnyTool:
    """The tool as ours, whichever design it follows; one that is ours already stays as it is.

    ``kind`` and ``effect`` are for designs that do not say them (a builder says its kind).
    Raises ``TypeError`` for what is no tool, ``Misconfigured`` for one that cannot be offered.
    """
    match tool:
        case type():  # a class has its instances' members, but is no tool
            raise _unsupported(tool)
        case Tool():
            return tool
        case ToolInfo():
            return AdaptedInfo(tool, kind, effect)
        case ToolInfoAsync():
            return AdaptedInfoAsync(tool, kind, effect)
        case ToolBuilder():
            return AdaptedBuilder(tool, effect)
        case ListingTool():
            return AdaptedBaseTool(tool, kind, effect)
        case PlainTool():
            return AdaptedPlain(tool, kind, effect)
        case _:
            raise _unsupported(tool)


def convert_tools(tools: Iterable[object]) -> list[dict[str, Any]]:
    """Tools of any design as the Messages API wants them declared; a mapping is taken for a declaration."""
    return [tool if isinstance(tool, dict) else adapted(tool).to_schema() for tool in tools]


def _unsupported(tool: object) -> TypeError:
    return TypeError(f"Unsupported tool type: {type(tool)}")
