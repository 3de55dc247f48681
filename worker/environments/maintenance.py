"""What precedes the commands of a run: its services are started, and the maintenance of its environment is run."""

from __future__ import annotations

from typing import Protocol

from ..contracts import Command, Completed
from ..sandbox.project_tools import ProjectTools
from ..sandbox.services import Beside

_SECONDS = 300
_SHOWN_CHARACTERS = 2000


class Runs(Protocol):
    """Runs commands, as a sandbox does."""

    @property
    def beside(self) -> Beside: ...

    async def run(self, command: Command) -> Completed: ...


async def maintained(sandbox: Runs, tools: ProjectTools) -> str:
    """Starts the services, and runs the script of the environment, if it has one. Returns why that failed, or ""."""
    if why := await sandbox.beside.start():
        return why
    if not tools.maintenance:
        return ""
    argv = ["bash", "--noprofile", "--norc", "-e", "-c", tools.maintenance]
    done = await sandbox.run(Command(argv, _SECONDS, merged=True))
    if not done.exit_code:
        return ""
    ended = f"did not end within {_SECONDS} s" if done.timed_out else f"ended with exit code {done.exit_code}"
    printed = done.stdout.decode("utf-8", "replace").strip()[-_SHOWN_CHARACTERS:]
    return f"the maintenance of the environment {done.exceeded or ended}\n{printed}".rstrip()
