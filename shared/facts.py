"""The facts of a result: file changes, requested post-conditions with their outcomes, and what the run had read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, computed_field

from .wire import Request, Wire


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


class GitFacts(Wire):
    """What a delegation over a git repository began with, and what of it was delivered, if anything was."""

    base: str
    """The commit that was cloned."""
    branch: str | None = None
    commit: str | None = None
    pull_request_url: str | None = None


class Trust(Wire):
    """What a conversation has read, so that its words can be judged by where they may come from.

    Sources are ``parent``, ``workspace``, ``web``, ``mcp:SERVER`` and ``subagent:ID``, each once, in the order of the
    first reading. What a parent had read counts for its children, and what a child had read for its parent.
    """

    sources: list[str] = Field(default_factory=list)
    tainted_by: list[str] = Field(default_factory=list)
    """Those of the sources that are neither the operator's nor the parent's, and so may have been written to mislead:
    the web, MCP servers that the operator does not trust, and subagents that were tainted themselves."""
    neutralized: int = 0
    """How many places in what was read imitated control markup, and were made harmless (``shared/markup.py``)."""

    @computed_field
    @property
    def tainted(self) -> bool:
        return bool(self.tainted_by)

    def plus(self, other: Trust) -> Trust:
        """Returns the union: what was read by a reader of both."""
        return Trust(
            sources=[*dict.fromkeys((*self.sources, *other.sources))],
            tainted_by=[*dict.fromkeys((*self.tainted_by, *other.tainted_by))],
            neutralized=self.neutralized + other.neutralized,
        )

    def handed_on(self) -> Trust:
        """Returns the part that also counts for those who read what this conversation has written."""
        return Trust(sources=self.tainted_by, tainted_by=self.tainted_by)
