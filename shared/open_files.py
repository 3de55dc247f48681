"""This process's limit of open files, which also bounds its connections."""

from __future__ import annotations

import resource

MOST = 65_536
"""Some programs close all that the limit allows when they start."""


def raise_limit(most: int = MOST) -> int:
    """Raises the limit of open files as far as this process may, at the most to ``most``. Returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def limit() -> int:
    """Returns the limit of open files; MOST where there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft
