"""What the tools of a server are called here: ``mcp__server__tool``, in letters that every model takes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container

from shared.catalog import MCP

MAX_NAME = 64
_DIGEST = 8
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")


def prefix(server: str) -> str:
    """How the names of all tools of this server begin."""
    return f"{MCP}{_OTHER.sub('_', server)}__"[: MAX_NAME - _DIGEST - 1]


def exposed(server: str, tool: str, taken: Container[str]) -> str:
    """The name that models see; a long one, and one that is ``taken``, ends with letters of its own.

    It says nothing that the tool does not know itself: whoever asks which server it belongs to asks the tool.
    """
    whole = f"{MCP}{_OTHER.sub('_', server)}__{_OTHER.sub('_', tool)}"
    if len(whole) <= MAX_NAME and whole not in taken:
        return whole
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()
    return f"{whole[: MAX_NAME - _DIGEST - 1]}_{digest[:_DIGEST]}"
