"""The facts of a result: file changes, and the requested post-conditions with their outcomes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from deputize.shared.wire import Request, Wire


class FileChange(Wire):
    """A fact about one file, from the manifests before and after, regardless of what changed it.

    ``in_patch`` is false for a file that is too large for the patch, or of a kind that no patch can carry.
    """

    path: str
    change: Literal["created", "modified", "deleted", "renamed"]
    from_: str | None = Field(default=None, alias="from")
    base_hash: str | None = None
    new_hash: str | None = None
    added_lines: int = 0
    removed_lines: int = 0
    in_patch: bool = True
    size: int | None = None
    """Bytes of the new content; null for a deleted file, or where it is not known."""


class CommandCheck(Request):
    kind: Literal["command"]
    run: str = Field(min_length=1)
    timeout_seconds: float = Field(default=120, gt=0)


class FileCheck(Request):
    kind: Literal["file"]
    path: str = Field(min_length=1)
    exists: bool | None = None
    matches: str | None = None
    sha256: str | None = None


class UnchangedCheck(Request):
    kind: Literal["unchanged"]
    paths: list[str] = Field(min_length=1)


class ChangedCheck(Request):
    kind: Literal["changed"]
    paths: list[str] = Field(min_length=1)


VerifyItem = Annotated[CommandCheck | FileCheck | UnchangedCheck | ChangedCheck, Field(discriminator="kind")]


class Check(Wire):
    """One post-condition and how it came out."""

    item: dict[str, Any]
    ok: bool
    exit_code: int | None = None
    output_tail: str = ""


class Verification(Wire):
    verdict: Literal["verified", "refuted", "unverified"] = "unverified"
    checks: list[Check] = Field(default_factory=list)
    claims: list[dict[str, Any]] = Field(default_factory=list)
