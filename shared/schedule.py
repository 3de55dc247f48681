"""A schedule as callers see it."""

from __future__ import annotations

from .wire import Timestamp, Wire


class Schedule(Wire):
    """What the service begins at the times of a cron expression."""

    name: str
    """Its name in the settings."""
    cron: str
    """Minute, hour, day, month, day of the week; with six fields the first one is the second."""
    zone: str
    """The time zone."""
    next: Timestamp | None = None
    """Its next time; null while it is paused, and before a service has looked at it."""
    last: Timestamp | None = None
    """The time of its last delegation."""
    last_delegation_id: str | None = None
    """Its last delegation."""
    failures: int = 0
    """How many in a row have failed."""
    paused: str | None = None
    """Why it is paused; null where it is not."""
    error: str | None = None
    """Why its last time could not begin anything."""
