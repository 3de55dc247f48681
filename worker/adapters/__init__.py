"""Adapters for tools of other styles: their results and the conventions of their calls become those of ours.

A worker with such a tool: ``main(tools=(*BUILTIN, adapt(tool)))``.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..tools.base import AnyTool, Effect, Kind, Tool
from .adapter import ToolAdapter
from .base_classes import TableEntry, ToolInfo, ToolInfoAsync
from .styles import AsyncToolInfoAdapter, BaseToolAdapter, BuilderAdapter, PlainAdapter, TableAdapter, ToolInfoAdapter

__all__ = ["TableEntry", "adapt", "adapt_table"]

_STYLES: tuple[tuple[type[ToolAdapter], tuple[str, ...]], ...] = (
    (BuilderAdapter, ("name", "display_name", "kind", "can_update_output", "schema", "build")),
    (BaseToolAdapter, ("name", "description", "get_parameters", "validate_params", "execute")),
    (PlainAdapter, ("name", "description", "parameters", "execute")),
)
"""The styles whose tools are recognized by their members, whatever their base class; the first match counts."""


def adapt(tool: object, *, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> AnyTool:
    """Returns an adapter for a tool of any style, or the tool itself if it needs none.

    ``kind`` and ``effect`` apply to styles that do not declare them (a builder declares its kind).
    Raises TypeError for an object that is not a tool, and Misconfigured for one that cannot be offered.
    """
    if isinstance(tool, Tool):
        return tool
    if isinstance(tool, ToolInfo):
        return ToolInfoAdapter(tool, kind, effect)
    if isinstance(tool, ToolInfoAsync):
        return AsyncToolInfoAdapter(tool, kind, effect)
    for adapter, members in _STYLES:
        # A class has the members of its instances, but is not a tool.
        if not isinstance(tool, type) and all(hasattr(tool, member) for member in members):
            return adapter(tool, kind, effect)
    raise TypeError(f"Unsupported tool type: {type(tool)}")


def adapt_table(table: Mapping[str, TableEntry]) -> list[TableAdapter]:
    """Returns adapters for all tools of a table, in order."""
    return [TableAdapter({"name": name, **entry}) for name, entry in table.items()]
