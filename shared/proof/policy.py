"""Rules for proofs: what a change must be to be merged by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict

from ..patch_format import parse_patch
from ..promises import Finding
from ..settings.files import toml_of
from ..text import count
from .comparison import Stated


class Policy(BaseModel):
    """What a proof must be for its change to be merged by itself. Every rule that is set must hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: list[str] = []
    """Ids of the keys of which one has to have signed."""
    paths: list[str] = []
    """Patterns as in .gitignore: the patch touches nothing else."""
    max_lines: int | None = None
    """How many lines the patch adds and removes at most."""
    canary: Literal["red"] | None = None
    """Whether each check has to have noticed what was broken for that purpose."""
    verdict: Literal["verified"] | None = None

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Raises ValueError."""
        return cls.model_validate(toml_of(data))

    def rows(self, key: str, stated: Stated, patch: str, outside: Sequence[str] | None) -> Iterator[Finding]:
        """Yields a row per rule. ``outside`` are the touched paths that no pattern matches; None: not known."""
        parts = parse_patch(patch)
        lines = sum(sign != b" " for part in parts for hunk in part.hunks for sign, _ in hunk.lines)
        binary = sum(part.binary for part in parts)
        commands = [each for each in stated.found["checks"] if each["item"]["kind"] == "command"]
        blind = sum(each["canary"] != "red" for each in commands)
        is_small = lines <= (self.max_lines or 0) and not binary
        if self.keys:
            yield _row("keys", key in self.keys, f"the key {key} signed")
        if self.paths and outside is None:
            yield Finding("!", "policy paths", "not tried")
        elif self.paths:
            yield _row("paths", not outside, f"touched besides: {', '.join((outside or ())[:10]) or 'none'}")
        if self.max_lines is not None:
            yield _row("max_lines", is_small, f"{lines} lines, {count(binary, 'binary file')}")
        if self.canary:
            yield _row("canary", bool(commands) and not blind, f"{blind} of {len(commands)} commands without a red one")
        if self.verdict:
            yield _row("verdict", stated.found["verdict"] == self.verdict, stated.found["verdict"])


def _row(name: str, holds: bool, detail: str) -> Finding:
    return Finding("✓" if holds else "✗", f"policy {name}", detail)
