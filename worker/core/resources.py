"""What one attempt has of its worker: its context, the objects behind its contracts, files, models and outputs.

``worker/attempts.py`` has the class that opens them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...shared.delegation import Artifact
from ...shared.events import Envelope
from ..models.base import Model
from .hooks import TurnHooks
from .loop import Loop
from .run_context import RunContext
from .run_contracts import Inbox


@dataclass(frozen=True, slots=True)
class RunOutputs:
    """A run's outputs: its file changes with their patch, and its artifacts as the record stores them."""

    of_files: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The result's fields about files."""
    patch: str | None = None
    """None where the files could not be compared."""
    artifacts: Sequence[Artifact] = ()
    kept: Mapping[str, str] = field(default_factory=dict[str, str])
    disk_bytes: int | None = None


class Resources(Protocol):
    """What one attempt has of its worker."""

    @property
    def context(self) -> RunContext: ...

    @property
    def inbox(self) -> Inbox: ...

    @property
    def worker(self) -> str:
        """The name of the worker."""
        ...

    @property
    def given_up(self) -> str:
        """Why the run is given up; "" if it continues."""
        ...

    @property
    def retention_seconds(self) -> int:
        """How long the record is kept after the end."""
        ...

    @property
    def trace_id(self) -> str:
        """The id of the trace that the run is part of, for log lines; "" where it is part of none."""
        ...

    def open_inbox(self, on_wrap_up: Callable[[], None]) -> None:
        """Lets messages come in; ``on_wrap_up`` is called once when the caller asks the run to wrap up."""
        ...

    async def prepare(self) -> None:
        """Removes the files of a failed try, and reads the conversation that the run continues.

        Raises ``Conflict`` and ``Fenced``.
        """
        ...

    async def events(self) -> Sequence[Envelope]:
        """Returns the events of earlier attempts. Raises ``Fenced`` while they cannot be read."""
        ...

    async def model(self) -> Model | None:
        """Returns the model; None for a run without one. Raises ``ModelUnavailable`` and ``Misconfigured``."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether its files come from another machine."""
        ...

    async def open_files(self) -> None:
        """Opens the run's own files. Raises ``WorkspaceLost``, ``RepositoryFailed`` and ``Refused``."""
        ...

    async def set_up(self) -> None:
        """Sets the project up."""
        ...

    def loop(self, model: Model, hooks: TurnHooks) -> AbstractAsyncContextManager[Loop]:
        """Opens sandbox and tools and yields the loop, which calls the ``hooks``.

        When the block ends, none of their processes is alive.
        """
        ...

    async def outputs(self) -> RunOutputs:
        """Collects the outputs in every case. Where files cannot be read, the run's errors contain the reason."""
        ...

    def close(self) -> None:
        """Ends what this attempt has opened."""
        ...
