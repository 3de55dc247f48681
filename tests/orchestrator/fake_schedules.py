"""Schedules of the service that tests talk to."""

from __future__ import annotations

from typing import Any

from deputize.shared.delegation import Delegation
from deputize.shared.errors import NotFound
from deputize.shared.request import DelegationRequest
from deputize.shared.schedule import Schedule


class FakeSchedules:
    """Its operations on schedules; those that a test has put into ``planned``."""

    def __init__(self) -> None:
        self.planned = dict[str, Schedule]()
        super().__init__()

    async def schedules(self: Any) -> list[Schedule]:
        self.check()
        return [*self.planned.values()]

    async def run_schedule(self: Any, name: str) -> Delegation:
        self._planned(name)
        return (await self.create(DelegationRequest(task=name, labels={"schedule": name}))).delegation

    async def pause_schedule(self: Any, name: str) -> Schedule:
        self.planned[name] = self._planned(name).model_copy(update={"paused": "by hand"})
        return self.planned[name]

    async def resume_schedule(self: Any, name: str) -> Schedule:
        self.planned[name] = self._planned(name).model_copy(update={"paused": None})
        return self.planned[name]

    def _planned(self: Any, name: str) -> Schedule:
        self.check()
        if name not in self.planned:
            raise NotFound(f"there is no schedule {name!r}; `deputize schedules list` lists them")
        return self.planned[name]
