"""What the policy judges tools by, as the events of a run and the worker's card publish it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from ...shared.tool_traits import ToolTraits
from .base import AnyTool


def tool_traits(tools: Iterable[AnyTool]) -> list[ToolTraits]:
    """Returns what the policy judges these tools by."""
    return [
        ToolTraits(
            name=tool.name,
            kind=tool.kind,
            effect=tool.effect,
            **asdict(tool.origin),
            trusted=tool.trusted,
            needs_approval=tool.needs_approval,
        )
        for tool in tools
    ]


def further_tools(kit: Mapping[str, AnyTool]) -> list[AnyTool]:
    """Returns the tools of a kit that are not built in."""
    return [tool for tool in kit.values() if tool.origin.source != "builtin"]
