"""Commands in the background: started, looked up and read."""

from __future__ import annotations

from typing import Any

from deputize.worker.sandbox.shells import BackgroundShell
from deputize.worker.tools.base import ToolResult
from tests.toolbench import Toolbench
from tests.waiting import until

WAIT_FOR_GO = "while ! [ -e go ]; do sleep 0.01; done"


async def start(desk: Toolbench, command: str, **more: Any) -> str:
    """Starts a command in the background and gives its id."""
    result = await desk.call("bash", command=command, run_in_background=True, **more)
    assert result.success, result.error
    return result.metadata["bashId"]


def shell_of(desk: Toolbench, bash_id: str) -> BackgroundShell:
    return desk.sandbox.shells.lookup(bash_id)


async def has_ended(desk: Toolbench, bash_id: str) -> None:
    await until(lambda: not shell_of(desk, bash_id).running)


async def output(desk: Toolbench, bash_id: str, **more: Any) -> ToolResult:
    return await desk.call("bash_output", bash_id=bash_id, **more)


async def all_output(desk: Toolbench, bash_id: str) -> str:
    """What bash_output shows once the command has ended."""
    await has_ended(desk, bash_id)
    return (await output(desk, bash_id)).content
