"""What runs beside the commands of one sandbox, as its commands and what starts them know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ...shared.settings.services import ServiceSettings
from .environment import BindMount
from .ports import Serve


@dataclass(frozen=True, slots=True)
class Service:
    """A service of the environment of a run. ``template`` is the data that each use begins with a copy of."""

    name: str
    settings: ServiceSettings
    template: Path | None
    mounts: tuple[BindMount, ...]
    """What of the machine it sees besides the system."""
    path: tuple[str, ...]
    """Directories that come before the system's on its PATH."""

    @property
    def folder(self) -> str:
        """Where it may put a socket, inside."""
        return f"/opt/services/{self.name}"

    def __str__(self) -> str:
        place = f"127.0.0.1:{self.settings.port}" if self.settings.port else f"a socket in {self.folder}"
        names = f" ({', '.join(self.settings.variables)})" if self.settings.variables else ""
        return f"{self.name} at {place}{names}"


class Beside(Protocol):
    """Runs beside the commands of a sandbox."""

    @property
    def served(self) -> Mapping[int, Serve]:
        """The ports of commands, each with what serves it."""
        ...

    async def start(self) -> str:
        """Starts all. Returns why that failed, or ""."""
        ...

    async def restored(self) -> list[str]:
        """Starts again what has ended. Returns a sentence about each, for the next command's output."""
        ...


@dataclass(frozen=True, slots=True)
class OnlyPorts:
    """Ports that are served, and nothing to start; without any, nothing runs beside the commands."""

    served: Mapping[int, Serve] = field(default_factory=dict[int, Serve])

    async def start(self) -> str:
        return ""

    async def restored(self) -> list[str]:
        return []
