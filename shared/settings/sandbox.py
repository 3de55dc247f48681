"""The settings of the sandbox: what commands find there, and their limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from ..text import did_you_mean
from .variables import COMMA_SEPARATED, TABLE, AbsolutePath

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


class RunSandbox(BaseModel):
    """What the commands of a run find, and their limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    find_tools: bool = True
    """Whether commands find the workspace's virtual environment and node_modules and the interpreters on this
    process's PATH, read-only."""
    show: Annotated[list[AbsolutePath], COMMA_SEPARATED] = []
    """Further directories or files that commands may read, at the same path; their ``bin`` comes first on PATH."""
    setup: str | None = None
    """A command that prepares what a project needs, run once per project and inputs, before a run; "" for none.

    It sees the workspace read-only and fills /opt/setup, which commands then find read-only, ``bin`` first on PATH.
    """
    setup_hosts: HostPatterns = []
    """Hosts that this command may reach, over HTTP and HTTPS on ports 80 and 443: ``name``, ``*.name``, or ``*`` for
    every public one. Empty: it has no network."""
    setup_inputs: Annotated[list[str], COMMA_SEPARATED] = [
        *("requirements.lock", "requirements.txt", "pyproject.toml", "uv.lock", "poetry.lock", "setup.py"),
        *("package.json", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "Cargo.lock", "go.sum"),
    ]
    """Files of the workspace whose contents, besides those named in the command, decide whether it has to run again."""
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
    """How much one run's workspace may take on disk, with what was copied and what its commands put into /tmp; holes of
    files do not count. More is not copied; a command that exceeds it is killed, and the run ends."""
    setup_disk_bytes: int = Field(default=16 << 30, ge=1 << 20)
    """How much the set-up command may put into /opt/setup and /opt/scratch."""
    file_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """How large a file may become."""
    processes: int = Field(default=256, ge=16)
    """How many processes and threads one command may have; all of one run together may have four times as many."""
    tmp_bytes: int = Field(default=256 << 20, ge=1 << 20)
    """How much one command may put into /tmp, which is memory."""


class SandboxProfile(RunSandbox):
    """A sandbox for the runs of some agents: what it leaves open is as in ``[sandbox]``."""

    @model_validator(mode="before")
    @classmethod
    def _of_runs_only(cls, value: Any) -> Any:
        if isinstance(value, dict) and (foreign := [name for name in ("enabled", "share") if name in value]):
            raise ValueError(f"a profile has no {foreign[0]!r}: it holds for the whole worker, so set it in [sandbox]")
        return value

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if name in self.model_fields_set}


class SandboxSettings(RunSandbox):
    """Where commands run: what they find there, and their limits."""

    enabled: bool | Literal["required"] = True
    """False refuses every tool that needs the sandbox; nothing ever runs unprotected.

    ``required``: a worker whose sandbox does not work ends at once with exit code 3. Its variable is
    ``DEPUTIZE_SANDBOX``, and ``sandbox = false`` in a file means the same as ``enabled = false`` in the table.
    """
    share: float = Field(default=0.75, gt=0, le=1)
    """Of this machine's or container's memory and processors and of the free disk space, what the commands of all
    runs of one worker process may take together. Beyond it, the one that takes the most is killed."""
    profiles: Annotated[dict[str, SandboxProfile], TABLE] = {}
    """Other sandboxes, by name, for the agents that name one. A variable holds JSON, as that of ``agents``."""

    @property
    def reached_hosts(self) -> Iterator[str]:
        """Patterns of the hosts that commands of any profile, or a set-up command, may reach."""
        for each in (self, *self.profiles.values()):
            yield from (*each.allowed_hosts, *each.setup_hosts)

    def unknown_profile(self, name: str | None) -> str | None:
        """Returns what is wrong with the name of a profile, or None."""
        if name is None or name in self.profiles:
            return None
        known = did_you_mean(name[:100], self.profiles) or f"there are {', '.join(self.profiles)}"
        hint = known if self.profiles else "the settings define none ([sandbox.profiles.NAME])"
        return f"there is no profile {name[:100]!r} of the sandbox; {hint}"

    def in_profile(self, name: str) -> SandboxSettings:
        """Returns these settings with those of a profile."""
        profile = self.profiles[name]
        return self.model_copy(update={each: getattr(profile, each) for each in profile.model_fields_set})

    def within(self, outer: SandboxSettings) -> SandboxSettings:
        """Returns of each setting the stricter one. The set-up command is that of ``outer``."""
        stricter: dict[str, Any] = {name: min(getattr(self, name), getattr(outer, name)) for name in _LIMITS}
        stricter["find_tools"] = self.find_tools and outer.find_tools
        stricter["show"] = [path for path in self.show if path in outer.show]
        stricter["allowed_hosts"] = _in_both(self.allowed_hosts, outer.allowed_hosts)
        return outer.model_copy(update=stricter)


_LIMITS = (
    *("network_bytes", "command_seconds", "memory_bytes", "cpus"),
    *("disk_bytes", "file_bytes", "processes", "tmp_bytes"),
)


def _in_both(ours: list[str], theirs: list[str]) -> list[str]:
    """Returns patterns for the hosts that match one of ours and one of theirs."""
    found = [host for host in ours if any(covers(pattern, host) for pattern in theirs)]
    return found + [host for host in theirs if host not in found and any(covers(pattern, host) for pattern in ours)]


def covers(pattern: str, host: str) -> bool:
    """Whether all hosts of a pattern match another one. No wildcard matches an address."""
    if pattern == host:
        return True
    try:
        ip_address(host)
    except ValueError:
        return pattern == "*" or (pattern.startswith("*.") and host.endswith(pattern[1:]))
    return False
