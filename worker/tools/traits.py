"""The traits of a tool: its kind, the effect of a repeated call, its origin, and which runs get it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Source = Literal["builtin", "discovered", "mcp"]


class Kind(StrEnum):
    """What a tool does to the world."""

    READ = "read"
    EDIT = "edit"
    DELETE = "delete"
    MOVE = "move"
    SEARCH = "search"
    EXECUTE = "execute"
    THINK = "think"
    FETCH = "fetch"
    OTHER = "other"

    @property
    def mutates(self) -> bool:
        """Whether calls of this kind change something and so need approval."""
        return self in (Kind.EDIT, Kind.DELETE, Kind.MOVE, Kind.EXECUTE)

    @property
    def looks(self) -> bool:
        """Whether calls of this kind change nothing and use no network."""
        return self in (Kind.READ, Kind.SEARCH, Kind.THINK)


class Effect(StrEnum):
    """What a repeated call does: nothing, the same effect again, or a second effect."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    EFFECTFUL = "effectful"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a tool comes from; never derived from the tool's name.

    ``server``: the name of its MCP server. ``remote``: its name at that server, or at the discovery command.
    """

    source: Source = "builtin"
    server: str | None = None
    remote: str | None = None

    def __str__(self) -> str:
        """The source as the worker announces it: ``builtin``, ``discovered`` or ``mcp:SERVER``."""
        return f"{self.source}:{self.server}" if self.server else self.source


@dataclass(frozen=True, slots=True)
class Availability:
    """Which runs get a tool.

    ``switch``: the field of ``ToolSettings`` that switches it on and off. ``by_default``: every run gets it where it is
    available, because the operator has configured it explicitly. ``by_name_only``: a request gets it only by naming
    it, and not by a pattern such as ``*``.
    """

    switch: str = ""
    by_default: bool = False
    by_name_only: bool = False
