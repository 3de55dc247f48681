"""Files that a tool makes again by itself: nothing that a run did."""

from __future__ import annotations

import re

_REMADE = re.compile(
    r"(?:^|/)(?:__pycache__|\.[\w-]*cache|\.tox|\.nox|\.hypothesis|\.eggs|[^/]+\.egg-info|node_modules)/|\.py[co]$"
)


def is_remade(path: str) -> bool:
    """Returns whether a path is in a cache or a folder of installed packages, or is compiled Python."""
    return _REMADE.search(path) is not None
