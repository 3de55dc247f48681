"""One run, made of its core, the resources of its worker and its parts."""

from __future__ import annotations

from ..shared.runs.record import Claim
from .attempts import Attempt
from .core.run import HEARTBEAT_SECONDS, Run
from .fleet.lease import StopSignal
from .parts.table import parts_of
from .services import Services


def run_of(claim: Claim, services: Services, stop: StopSignal, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> Run:
    """Returns one attempt at a delegation, ready to be executed."""
    attempt = Attempt(claim, services, stop)
    return Run(attempt, parts_of(attempt), stop, heartbeat_seconds)
