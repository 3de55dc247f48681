"""The promises about security of the README's table, and the findings of `deputize doctor`, which tries them.

It starts a process of the worker's code for that (``python -m deputize.worker.promises``), which prints its findings.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

State = Literal["✓", "!", "✗"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One row: ✓ works, ! works with a limitation, ✗ does not work. ``remedy`` is what to do about it."""

    state: State
    name: str
    detail: str
    remedy: str = ""

    def to_dict(self) -> dict[str, str]:
        words = {"✓": "ok", "!": "warning", "✗": "broken"}
        return {**asdict(self), "state": words[self.state]}


@dataclass(frozen=True, slots=True)
class Promise:
    """One row of the README's table.

    ``by_command``: it is tried with a command. ``by_service``: it is the service's own, which tries it itself.
    ``untried``: what of it is not tried, and why.
    """

    name: str
    text: str
    by_command: bool = False
    by_service: bool = False
    untried: str = ""

    @property
    def sentence(self) -> str:
        """The text without markup."""
        return self.text.replace("`", "")


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
    Promise(
        "forbidden",
        "forbidden commands (`sudo`, `mkfs`, `rm -rf /`) are denied wherever a command line spells them for a shell",
    ),
    Promise(
        "permission",
        "what needs permission is not executed without a person's answer, through every restart",
        untried="restarts, which would end what runs here",
    ),
    Promise("masking", "known secrets and shapes of tokens are masked in all that is published", by_service=True),
    Promise("scopes", "a token opens the routes of its scopes and no others", by_service=True),
)
