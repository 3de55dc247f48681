"""Paths as the tools for files take them from a model."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from shared.errors import ErrorType, ToolError

_HOME = re.compile(r"(?:~[\w.-]*|\$\{?(?:HOME|PWD)\}?|%USERPROFILE%)(?=/|$)")


def refuse_home(path: str) -> str:
    """Raises ToolError(PATH_NOT_ALLOWED) for what only a shell expands, and to another place than is meant.

    A plain name such as ``~backup.txt`` is none of it.
    """
    found = _HOME.match(path)
    if found is None or (found[0] == path and path[0] == "~" and path != "~"):
        return path
    raise ToolError(
        ErrorType.PATH_NOT_ALLOWED,
        f"Path not allowed: {path!r}: {found[0]} is not expanded here, and commands have another home. Use a path "
        f"relative to the workspace; a name that really begins so is written ./{path}.",
    )


WorkspacePath = Annotated[str, AfterValidator(refuse_home)]
"""A path in the workspace, relative to it or as commands see it."""
