"""What the workers of the service that tests talk to announce beside themselves."""

from __future__ import annotations

from typing import Any

from deputize.shared.fleet import PreparedEnvironment
from deputize.shared.runs.capacity import EndpointCapacity
from deputize.shared.runs.losses import StoreLoss


class FakeFleet:
    """Endpoints and environments that a test has put there."""

    def __init__(self) -> None:
        self.endpoints: list[EndpointCapacity] = []
        self.prepared: list[PreparedEnvironment] = []
        self.lost: list[StoreLoss] = []
        super().__init__()

    async def environments(self: Any) -> list[PreparedEnvironment]:
        self.check()
        return self.prepared

    async def capacity(self: Any) -> list[EndpointCapacity]:
        self.check()
        return self.endpoints

    async def losses(self: Any) -> list[StoreLoss]:
        self.check()
        return self.lost
