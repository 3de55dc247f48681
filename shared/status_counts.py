"""How many delegations there are of each status."""

from __future__ import annotations

from .wire import Wire


class StatusCounts(Wire):
    """How many delegations there are of each status, of those whose records are kept."""

    queued: int = 0
    """Those that no worker has begun with, or that are to be tried again."""
    paused: int = 0
    """Those of the queued ones that go on only when they are resumed."""
    running: int = 0
    """Those that a worker executes."""
    waiting: int = 0
    """Those whose run waits: for a permission, for child delegations, for the model's service."""
    succeeded: int = 0
    """Those that completed."""
    failed: int = 0
    """Those that an error or a limit ended, or whose verdict is not the one that was required."""
    cancelled: int = 0
    """Those that were cancelled or wrapped up."""
