"""The kinds of tools, and what a repeated call of one does."""

from __future__ import annotations

from enum import StrEnum


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
