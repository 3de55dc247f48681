"""The protocol of sandboxes: each command runs isolated and leaves no process behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NoReturn, Protocol

from ...shared.errors import ErrorType, ToolError
from .bounds import RunBounds
from .command import Command, Completed
from .shells import BackgroundShellManager


class Sandbox(Protocol):
    """Runs commands in one workspace. Cancelling ``run`` kills the whole process tree first."""

    reaped: list[str]
    """Command lines of the processes killed so far, after a timeout or because they were left behind."""
    shells: BackgroundShellManager
    """The background commands. Await their ``end`` before closing the sandbox."""

    @property
    def bounds(self) -> RunBounds | None:
        """What all of the run's processes may use together; None where none can be started."""
        ...

    @property
    def broken(self) -> str | None:
        """Why commands cannot be run safely here, or None. Nothing runs without isolation."""
        ...

    def program(self, name: str) -> str | None:
        """Returns the path of a program inside the sandbox, or None if the sandbox lacks it."""
        ...

    def outcome(self, status_file: str) -> int | Literal[False] | None:
        """Returns the exit code of a command that another process may have run, False if it never started, None if
        it started and its outcome is unknown."""
        ...

    def has_begun(self, status_file: str) -> bool:
        """Returns whether the disk has a trace of such a command."""
        ...

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        """Runs until the end, the timeout or cancellation; none of its processes is alive afterwards.

        Raises ``ToolError(SANDBOX_UNAVAILABLE)`` with the reason if ``broken``.
        """
        ...


class NoSandbox:
    """A sandbox that refuses to run commands, with a reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.reaped: list[str] = []
        self.shells = BackgroundShellManager(self._refuse)

    @property
    def bounds(self) -> RunBounds | None:
        return None

    @property
    def broken(self) -> str | None:
        return self.reason

    def program(self, name: str) -> str | None:
        return None

    def outcome(self, status_file: str) -> int | Literal[False] | None:
        return None

    def has_begun(self, status_file: str) -> bool:
        return False

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        return await self._refuse()

    async def _refuse(self, *_: object) -> NoReturn:
        raise ToolError(ErrorType.SANDBOX_UNAVAILABLE, f"commands cannot be run on this worker: {self.broken}")
