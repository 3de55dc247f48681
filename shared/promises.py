"""The promises about security of the README's table, and what one machine's process has found of them.

`deputize doctor` starts that process (``python -m deputize.worker.promises``), which prints the report as JSON.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from .errors import DeputizeError


@dataclass(frozen=True, slots=True)
class Promise:
    """One row of the README's table. ``by_command``: it is tried with a command. ``untried``: what is not, and why."""

    name: str
    text: str
    by_command: bool = False
    untried: str = ""


PROMISES = (
    Promise("secrets", "no secret of the worker is visible to a command: environments, memory, files", True),
    Promise("files", "no private file of the machine, no other run, no Redis is visible either", True),
    Promise(
        "links",
        "no name, link, pattern or race leads file tools out of the workspace",
        untried="patterns and races, which take longer",
    ),
    Promise("network", "commands have no network but the hosts of `sandbox.allowed_hosts`", True),
    Promise("kernel", "the kernel refuses namespaces, mounts, ptrace, unusual socket families, …", True),
    Promise(
        "bounds",
        "memory, processors, processes and disk of a run are bounded, and nothing goes on after it",
        True,
    ),
    Promise("planted", "configuration, hooks and rules in a workspace are ignored"),
    Promise("forbidden", "forbidden commands (`sudo`, `mkfs`, `rm -rf /`) are denied wherever a command line has them"),
    Promise(
        "permission",
        "what needs permission is not executed without a person's answer, through every restart",
        untried="restarts, which would end what runs here",
    ),
    Promise("masking", "known secrets and shapes of tokens are masked in all that is published"),
    Promise("scopes", "a token opens the routes of its scopes and no others"),
)


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """What commands find that work on a copy of a directory. ``programs``: their versions; None for what is missing."""

    venv: str | None
    dependencies: list[str]
    notes: list[str]
    programs: dict[str, str | None]
    is_set_up: bool


@dataclass(slots=True)
class Report:
    """What was tried so far."""

    error: str = ""
    """What has to be corrected before commands can be tried."""
    sandbox: str | None = None
    """Why commands cannot run; "" if they can; None if that was not tried."""
    is_memory_private: bool | None = None
    problems: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By promise; an empty list where all is well."""
    untried: dict[str, str] = field(default_factory=dict[str, str])
    """The reason, by promise."""
    variables: list[str] = field(default_factory=list[str])
    """The names of those that commands have."""
    is_redis_here: bool = False
    """Whether Redis answers outside of the sandbox."""
    has_groups: bool = False
    """Whether control groups bound memory."""
    project: ProjectFacts | None = None

    @contextmanager
    def attempting(self, *promises: str) -> Generator[None]:
        """Notes why the promises could not be tried in the block."""
        try:
            yield
        except (DeputizeError, OSError) as error:
            self.untried |= dict.fromkeys(promises, str(error))

    def add(self, problems: Mapping[str, list[str]]) -> None:
        for promise, found in problems.items():
            self.problems.setdefault(promise, []).extend(found)


REPORT = TypeAdapter(Report)
"""Reads a report from JSON, and writes it."""
