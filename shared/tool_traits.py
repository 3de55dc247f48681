"""The traits of a tool by which the policy judges it."""

from __future__ import annotations

from .wire import Wire


class ToolTraits(Wire):
    """What the policy judges a tool by that is not built in, as the run had it."""

    name: str
    """The name by which the model calls it."""
    kind: str
    """Its class of operation: read, edit, delete, move, search, execute, think, fetch or other."""
    effect: str
    """The effect of a repeated call: pure, idempotent or effectful."""
    source: str
    """``mcp`` or ``discovered``."""
    server: str | None = None
    """The MCP server that has it."""
    remote: str | None = None
    """Its name on that server."""
    trusted: bool = False
    """Whether the operator trusts the server."""
    needs_approval: bool = False
    """Whether the operator demands a permission for each call."""
