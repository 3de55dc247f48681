"""What commands find that work on a copy of a directory: programs, an environment, what has set it up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...shared.settings import Settings
from ..sandbox.bubblewrap import Bubblewrap
from ..sandbox.command import Command
from ..sandbox.project_tools import ProjectTools, tools_for
from ..sandbox.setup_command import SetupCache

_PROGRAMS = {
    "python": "$(command -v python || command -v python3) --version",
    "pytest": "$(command -v python || command -v python3) -m pytest --version",
    **{name: f"{name} --version" for name in ("git", "node", "npm", "cargo", "uv", "make", "gcc")},
    "go": "go version",
    "java": "java -version",
}
_SECONDS = 120


async def find_project(settings: Settings, directory: Path, folder: Path) -> dict[str, Any]:
    """Asks every program for its version, inside a sandbox over ``folder``. The directory itself is not shown to any.

    Raises ToolError if commands cannot be run.
    """
    tools = tools_for(settings, directory)
    with Bubblewrap(folder, tools=tools) as sandbox:
        programs = await _versions(sandbox)
    is_set_up = await SetupCache(settings).is_kept(tools, directory)
    return {**_environment(tools), "programs": programs, "is_set_up": is_set_up}


async def _versions(sandbox: Bubblewrap) -> dict[str, str | None]:
    """Returns the first line that each program prints about its version; None if it is not there or does not work."""
    asked = [f"v=$({line} 2>&1) && printf '%s' \"$v\" | head -n 1 >/tmp/{name}" for name, line in _PROGRAMS.items()]
    shown = [f"printf '%s\\n' \"$(cat /tmp/{name} 2>/dev/null)\"" for name in _PROGRAMS]
    script = "\n".join([*(f"({each}) &" for each in asked), "wait", *shown])
    done = await sandbox.run(Command(["bash", "--noprofile", "--norc", "-c", script], _SECONDS))
    lines = (line.strip() or None for line in done.stdout.decode("utf-8", "replace").split("\n"))
    return dict(zip(_PROGRAMS, lines, strict=False))


def _environment(tools: ProjectTools) -> dict[str, Any]:
    venv = tools.variables.get("VIRTUAL_ENV")
    return {"venv": venv, "dependencies": [*tools.dependencies], "path": tools.path, "notes": tools.notes}
