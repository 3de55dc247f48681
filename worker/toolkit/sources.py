"""The protocol of tool sources: providers of tools that exist only during a run, such as MCP servers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol

from ..sandbox.base import Sandbox
from ..tools.base import AnyTool
from ..workspace.files import Files


@dataclass(frozen=True, slots=True)
class ToolSourceContext:
    """The run for which a source opens tools."""

    delegation_id: str
    patterns: Sequence[str] | None
    """The tool names and patterns of the request; None for the default kit."""
    files: Files
    sandbox: Sandbox
    warn: Callable[[str], None]
    """Publishes a warning; the run continues."""
    hide: Callable[[Sequence[str]], None] = lambda values: None
    """Masks these secrets in everything that the run publishes or stores."""
    read_only: bool = False
    """Whether processes of the tools must not change the run's files."""
    missing: list[str] = field(default_factory=list[str])
    """Name prefixes of tools that are unavailable now."""

    def add_missing(self, prefix: str) -> None:
        """Records that tools with this name prefix are unavailable, so that a request for them is not an error."""
        self.missing.append(prefix)

    def wants(self, prefix: str) -> bool:
        """Returns whether the request may select tools with this name prefix; others need not be opened."""
        if self.patterns is None:
            return True
        return any(_may_match(pattern, prefix) for pattern in self.patterns)

    def may_be_missing(self, pattern: str) -> bool:
        """Returns whether a pattern may match tools that are unavailable now."""
        return any(_may_match(pattern, prefix) for prefix in self.missing)


class Source(Protocol):
    """A provider of tools for the time of a run."""

    def open(self, context: ToolSourceContext) -> AbstractAsyncContextManager[Sequence[AnyTool]]:
        """Opens the tools until the block ends. Unavailable ones are a warning, never an exception."""
        ...


def _may_match(pattern: str, prefix: str) -> bool:
    """Returns whether the pattern can match a name that begins with ``prefix``."""
    literal, *wild = re.split(r"[*?[]", pattern, maxsplit=1)
    return pattern.startswith(prefix) or fnmatchcase(prefix, pattern) or bool(wild and prefix.startswith(literal))
