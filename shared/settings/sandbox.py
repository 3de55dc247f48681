"""The settings of the sandbox: what commands find there, and their limits."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from deputize.shared.settings.values import COMMA_SEPARATED, AbsolutePath

_HOST_PATTERN = re.compile(r"\*|(\*\.)?[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?|[0-9a-f:]*:[0-9a-f:.]+", re.IGNORECASE)


def _host_pattern(value: str) -> str:
    if not _HOST_PATTERN.fullmatch(value):
        raise ValueError(
            f"{value!r} is not a host such as example.org, *.example.org or *, without scheme, port and path"
        )
    return value.lower().removesuffix(".")


HostPatterns = Annotated[list[Annotated[str, AfterValidator(_host_pattern)]], COMMA_SEPARATED]


def sandbox_table(value: Any) -> Any:
    """Returns a plain ``sandbox`` setting (true, false, ``required``) as its table."""
    return {"enabled": value} if isinstance(value, bool | str) else value


class SandboxSettings(BaseModel):
    """Where commands run: what they find there, and their limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool | Literal["required"] = True
    """False refuses every tool that needs the sandbox; nothing ever runs unprotected.

    ``required``: a worker whose sandbox does not work ends at once with exit code 3. Its variable is
    ``DEPUTIZE_SANDBOX``, and ``sandbox = false`` in a file means the same as ``enabled = false`` in the table.
    """
    find_tools: bool = True
    """Whether commands find the workspace's virtual environment and node_modules and the interpreters on this
    process's PATH, read-only."""
    show: Annotated[list[AbsolutePath], COMMA_SEPARATED] = []
    """Further directories or files that commands may read, at the same path; their ``bin`` comes first on PATH."""
    setup: str | None = None
    """A command that prepares what a project needs, run once per project and inputs, before a run.

    It sees the workspace read-only and fills /opt/setup, which commands then find read-only, ``bin`` first on PATH.
    """
    setup_hosts: HostPatterns = []
    """Hosts that this command may reach, over HTTP and HTTPS on ports 80 and 443: ``name``, ``*.name``, or ``*`` for
    every public one. Empty: it has no network."""
    setup_inputs: Annotated[list[str], COMMA_SEPARATED] = [
        *("requirements.lock", "requirements.txt", "pyproject.toml", "uv.lock", "poetry.lock", "setup.py"),
        *("package.json", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "Cargo.lock", "go.sum"),
    ]
    """Files of the workspace whose contents decide whether the command has to run again."""
    setup_seconds: float = Field(default=600, gt=0)
    allowed_hosts: HostPatterns = []
    """Hosts that every command may reach in the same way. They receive whatever a command sends them."""
    network_bytes: int = Field(default=8 << 30, ge=1 << 20)
    """How much a command that may reach hosts may transfer, in both directions together."""
    command_seconds: int = Field(default=600, ge=1, le=24 * 3600)
    """How long a foreground command may take; the model learns it from the schema of the tool."""
    memory_bytes: int = Field(default=2 << 30, ge=64 << 20)
    """How much memory all processes of one run may hold together, its background commands and MCP servers included.

    What counts is memory in use, /tmp included, and not reserved address space. The largest command is killed.
    """
    cpus: float = Field(default=2, gt=0)
    """How many processors the processes of one run may use together; without control groups rounded up."""
    disk_bytes: int = Field(default=2 << 30, ge=1 << 20)
    """How much the commands of one run may add to its workspace and put into /tmp; what writes more is killed."""
    setup_disk_bytes: int = Field(default=16 << 30, ge=1 << 20)
    """The same for the set-up command, which fills /opt/setup and /opt/scratch."""
    share: float = Field(default=0.75, gt=0, le=1)
    """Of this machine's or container's memory and processors and of the free disk space, what the commands of all
    runs of one worker process may take together. Beyond it, the one that takes the most is killed."""
    file_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """How large a file may become."""
    processes: int = Field(default=256, ge=16)
    """How many processes and threads one command may have; all of one run together may have four times as many."""
    tmp_bytes: int = Field(default=256 << 20, ge=1 << 20)
    """How much one command may put into /tmp, which is memory."""
