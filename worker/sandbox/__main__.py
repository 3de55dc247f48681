"""`python -m deputize.worker.sandbox DIR`: what commands find that work on a copy of a directory, as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from deputize.shared.errors import DeputizeError
from deputize.shared.settings import Settings
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.command import Command
from deputize.worker.sandbox.environment import owner
from deputize.worker.sandbox.project_tools import ProjectTools, check_shown, tools_for
from deputize.worker.sandbox.protections import try_protections
from deputize.worker.sandbox.setup_command import SetupCache

_PROGRAMS = {
    "python": "$(command -v python || command -v python3) --version",
    "pytest": "$(command -v python || command -v python3) -m pytest --version",
    **{name: f"{name} --version" for name in ("git", "node", "npm", "cargo", "uv", "make", "gcc")},
    "go": "go version",
    "java": "java -version",
}
_SECONDS = 120


async def find(settings: Settings, directory: Path) -> dict[str, Any]:
    """Asks every program for its version, inside the sandbox. The directory itself is not shown to any.

    Raises DeputizeError for settings that are wrong, and ToolError if commands cannot be run.
    """
    check_shown(settings)
    if reason := await Bubblewrap.selftest():
        return {"sandbox": reason}
    tools = tools_for(settings, directory)
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="deputize-")))
        if ids := owner():
            os.chown(folder, *ids)
        sandbox = opened.enter_context(Bubblewrap(folder, tools=tools))
        programs = await _versions(sandbox)
        asked = await sandbox.run(Command(["sh", "-c", "env; cat /proc/*/environ 2>/dev/null; :"], _SECONDS))
    variables = asked.stdout.decode("utf-8", "replace")
    is_set_up = await SetupCache(settings).is_kept(tools, directory)
    tried = {"variables": variables, "protections": await try_protections()}
    return {"sandbox": None, **_environment(tools), "programs": programs, "is_set_up": is_set_up, **tried}


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


def main() -> int:
    """Prints one JSON object. ``error`` is what has to be mended before anything can be found."""
    try:
        found = asyncio.run(find(Settings.load(), Path(sys.argv[1])))
    except DeputizeError as error:
        found = {"error": str(error)}
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
