"""The compose file as the real Compose reads it, and its commands in a folder that stands for a container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def service(name: str, folder: Path = ROOT, /, **variables: str) -> dict[str, Any]:
    """A service as the real Compose reads it in ``folder`` where the caller has set nothing but ``variables``."""
    return _services(folder, **variables)[name]


def services_with(variant: Path) -> dict[str, Any]:
    """All services where this file is named after the compose file."""
    return _services(ROOT, ("-f", "docker-compose.yml", "-f", str(variant)))


@cache
def _services(folder: Path, files: tuple[str, ...] = (), **variables: str) -> dict[str, Any]:
    done = subprocess.run(
        [BIN / "docker-compose", *files, "--profile", "*", "config", "--format", "json"],
        cwd=folder,
        env={"PATH": os.environ["PATH"]} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)["services"]


def shell(command: str, folder: Path, **places: str) -> subprocess.CompletedProcess[str]:
    """A shell's command of the compose file, with the container's ``places`` in this folder."""
    for place in places.values():
        command = command.replace(place, str(folder))
    given = {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(["sh", "-c", command.replace("$$", "$")], env=given, capture_output=True, text=True)
