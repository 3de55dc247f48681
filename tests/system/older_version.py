"""The version that landed last, beside this one: its programs run from its own tree, taken from the history."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.sources import ROOT
from tests.processes.preloaded import Forked
from tests.system.crashing import WORKER
from tests.waiting import until

OLDER = "cd3575f0eb3ebcd53a22d5cd09dbccc92c006963"
"""What an upgrade begins with: the last commit of the version that is in use. It moves on when the next one lands."""
SERVICE = "deputize.orchestrator.serve"
_RUN = "import importlib, sys; sys.exit(importlib.import_module(sys.argv.pop(1)).main())"


def older_tree(folder: Path) -> Path:
    """Returns the files of the older version. Without the repository's history a test is skipped, and fails in CI."""
    archived = subprocess.run(["git", "-C", ROOT, "archive", OLDER], capture_output=True, check=False)
    if archived.returncode:
        why = f"{OLDER[:12]} is not in the history of this checkout: fetch all of it (git fetch --unshallow)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    with tarfile.open(fileobj=BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@dataclass
class Versions:
    """Starts workers and services of both versions over one Redis, with the same settings."""

    older: Path
    settings: Mapping[str, str]
    logs: Path
    running: dict[str, subprocess.Popen[str] | Forked] = field(default_factory=dict[str, Any])

    async def start(self, version: str, name: str, program: str, *arguments: str) -> None:
        """Starts a program of the ``older`` version or of this one (``newer``)."""
        log = self.log_of(name)
        with log.open("ab") as output:
            streams: dict[str, Any] = {"stdout": output.fileno(), "stderr": output.fileno(), "start_new_session": True}
            if version == "newer":
                self.running[name] = Forked(program, arguments, self.settings, **streams)
                return
            command = [sys.executable, "-c", _RUN, program, *arguments]
            path = os.pathsep.join(map(str, (self.older, self.older / ".package")))
            environment = {**self.settings, "PYTHONPATH": path}
            options: dict[str, Any] = {"cwd": self.older, "env": environment, "stdin": subprocess.DEVNULL}
            self.running[name] = subprocess.Popen(command, **options, **streams)

    async def worker(self, version: str, name: str) -> None:
        await self.start(version, name, WORKER, "--name", name)

    async def service(self, version: str, name: str) -> str:
        """Returns the address of a service that answers."""
        await self.start(version, name, SERVICE, "--port", "0")
        found = await until(lambda: re.search(r"listening on (http://\S+?)[\s\"]", self.log_of(name).read_text()))
        return found[1]

    def log_of(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    async def stop(self, name: str) -> None:
        """SIGTERM: a worker hands over what it runs."""
        process = self.running[name]
        process.send_signal(signal.SIGTERM)
        await until(lambda: process.poll() is not None)

    async def kill(self, name: str) -> None:
        process = self.running[name]
        process.kill()
        await until(lambda: process.poll() is not None)


@contextmanager
def both_versions(older: Path, settings: Mapping[str, str], logs: Path) -> Generator[Versions]:
    versions = Versions(older, settings, logs)
    try:
        yield versions
    finally:
        for process in versions.running.values():
            process.kill()
            process.wait()
