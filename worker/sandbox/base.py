"""What a sandbox is: a place where one command runs and after which nothing of it is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NoReturn, Protocol

from shared.errors import ErrorType, ToolError
from worker.sandbox.command import Command, Completed
from worker.sandbox.shells import BackgroundShellManager


class Sandbox(Protocol):
    """Runs commands over one workspace. Whoever cancels ``run`` gets the whole process tree killed first."""

    reaped: list[str]
    """Command lines of all that had to be killed here so far, because its time was over or it was left behind."""
    shells: BackgroundShellManager
    """The commands that go on by themselves. Who closes the sandbox awaits their ``end`` before."""

    @property
    def broken(self) -> str | None:
        """Why commands cannot be run safely here, or None. Nothing ever runs unprotected."""
        ...

    def program(self, name: str) -> str | None:
        """Where a command finds this program, or None where the sandbox has none of that name."""
        ...

    def outcome(self, mark: str) -> int | Literal[False] | None:
        """Of a command that another process may have run: its exit code, False where it never began, None where it
        began and nobody knows how far it came."""
        ...

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        """Runs to the end, the timeout or cancellation; no process of it is alive afterwards.

        Raises ``ToolError(SANDBOX_UNAVAILABLE)`` where ``broken`` says why.
        """
        ...


class NoSandbox:
    """Where commands must not run at all: says why, and runs nothing."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.reaped: list[str] = []
        self.shells = BackgroundShellManager(self._refuse)

    @property
    def broken(self) -> str | None:
        return self.reason

    def program(self, name: str) -> str | None:
        return None

    def outcome(self, mark: str) -> int | Literal[False] | None:
        return None

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        return await self._refuse()

    async def _refuse(self, *_: object) -> NoReturn:
        raise ToolError(ErrorType.SANDBOX_UNAVAILABLE, f"commands cannot be run on this worker: {self.broken}")
