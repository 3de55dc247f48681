"""What the files of finished delegations take on disk, and what was removed of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import Field

from .wire import Wire

MAX_IDS = 1000


@dataclass(frozen=True, slots=True)
class Kept:
    """A finished delegation."""

    id: str
    finished: str
    disk: int


class DiskUsage(Wire):
    """The size of the files of finished delegations."""

    kept_bytes: int
    """Bytes that they take together."""
    delegations: int
    """How many of them still have files."""
    max_kept_bytes: int
    """The setting ``workspace_kept_bytes``: where a worker keeps more, the files of those that ended first go."""

    @classmethod
    def of(cls, found: Sequence[Kept], most: int) -> Self:
        return cls(
            kept_bytes=sum(kept.disk for kept in found),
            delegations=sum(kept.disk > 0 for kept in found),
            max_kept_bytes=most,
        )


class Pruned(Wire):
    """The removed delegations; with ``dry_run`` those that would be removed."""

    removed: int
    """How many delegations."""
    freed_bytes: int
    """The size of their files, as far as it is known; workers remove them a moment later."""
    ids: list[str] = Field(default_factory=list)
    """The first 1,000, those that ended first at the beginning."""
    dry_run: bool = False
    """Whether nothing was removed."""

    @classmethod
    def of(cls, gone: Sequence[Kept], *, dry_run: bool) -> Self:
        ids = [kept.id for kept in gone[:MAX_IDS]]
        return cls(removed=len(gone), freed_bytes=sum(kept.disk for kept in gone), ids=ids, dry_run=dry_run)
