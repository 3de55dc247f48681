"""``[schedules.NAME]``: what the service begins by itself, and at which times."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .triggers import NAME, RequestTable

NEVER_PAUSED = 0


class ScheduleSettings(BaseModel):
    """A task at the times of a cron expression."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cron: str = Field(min_length=1, max_length=200)
    """Minute, hour, day, month, day of the week; with six fields the first one is the second."""
    zone: str = "UTC"
    """The zone of these times, as ``Europe/Berlin``."""
    task: str = Field(min_length=1)
    """What to do."""
    context: str = ""
    """Background that it needs."""
    request: RequestTable = {}
    """The other fields of the request."""
    owner: str = Field(default="", pattern=rf"^({NAME.pattern})?$")
    """Whose the delegations are; "" is the owner of the main token."""
    overlap: Literal["skip", "queue", "cancel"] = "skip"
    """What happens at a time at which the last delegation is not finished: nothing, it begins afterwards (once, however
    many times pass), or the last one is cancelled."""
    pause_after: int = Field(default=3, ge=NEVER_PAUSED)
    """Delegations in a row that fail, after which the schedule is paused; 0: it never is."""

    @model_validator(mode="after")
    def _comes(self) -> Self:
        if self.next_after(0) is None:
            raise ValueError(f"cron: {self.cron!r} is a time that never comes")
        return self

    @property
    def times(self) -> str:
        """What the times depend on."""
        return f"{self.zone} {self.cron}"

    def next_after(self, moment: int) -> int | None:
        """Returns the first time after that one, in seconds since the epoch. Raises ValueError for a wrong table.

        Where clocks are put forward, what would be in the gap is after it; where they are put back, a certain hour
        counts once.
        """
        from cronsim import CronSim, CronSimError  # only the service needs it, and only where there are schedules

        try:
            zone = ZoneInfo(self.zone)
        except (ValueError, OSError, LookupError):
            raise ValueError(f"zone: there is no time zone {self.zone[:100]!r}, such as Europe/Berlin") from None
        try:
            found = CronSim(self.cron, datetime.fromtimestamp(moment, zone))
            return next((int(each.timestamp()) for each in found if each.timestamp() > moment), None)
        except CronSimError as error:
            reason = str(error).lower()
            raise ValueError(
                f"cron: {self.cron!r} is not a cron expression ({reason}), such as '0 9 * * 1-5'"
            ) from None
