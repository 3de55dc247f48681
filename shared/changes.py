"""What became of the files of a delegation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.wire import Wire


class FileChange(Wire):
    """A fact about one file, from the manifests before and after, whoever changed it.

    ``in_patch`` is false where the patch lacks it: it is too large, or no file that a patch can carry.
    """

    path: str
    change: Literal["created", "modified", "deleted", "renamed"]
    from_: str | None = Field(default=None, alias="from")
    base_hash: str | None = None
    new_hash: str | None = None
    added_lines: int = 0
    removed_lines: int = 0
    in_patch: bool = True
