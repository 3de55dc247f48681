"""The table of summaries, each with what its run did, in ``corpus.yaml``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from deputize.shared.delegation import Step, StepStatus
from deputize.shared.facts import FileChange, SummaryClaim
from deputize.shared.wire import now
from deputize.worker.claims import Work, claims

_TYPES = {"bash": "bash", "write_file": "write", "edit_file": "edit", "call_subagent": "delegate"}
_ARGUMENTS = {"bash": "command", "create_artifact": "name", "grep": "pattern", "call_subagent": "task"}
_CHANGES = {"+": "created", "~": "modified", "-": "deleted"}


def step(line: str, number: int = 1) -> Step:
    """``bash ✗ pytest => 1 failed``: a tool, whether it failed (✗) or was denied (⊘), its argument and its result."""
    call, _, result = line.partition(" => ")
    found = re.fullmatch(r"(\w+)(?: ([✗⊘&]))? (.*)", call, re.DOTALL)
    assert found, line
    tool, sign, argument = found.groups()
    failed, denied = sign == "✗", sign == "⊘"
    arguments: dict[str, Any] = {_ARGUMENTS.get(tool, "path"): argument}
    why = "the command ended with exit code 1" if tool == "bash" else "the text was not found"
    return Step.model_validate(
        {
            "id": f"call_{number}",
            "type": _TYPES.get(tool, "read" if tool in ("read_file", "list_directory") else "tool_call"),
            "title": line,
            "status": StepStatus.FAILED if failed or denied else StepStatus.COMPLETED,
            "tool_name": tool,
            "arguments": arguments | ({"run_in_background": True} if sign == "&" else {}),
            "turn_index": number,
            "timestamp": now(),
            "result": result or None,
            "error": why if failed else "permission denied" if denied else None,
            "denied": denied,
        }
    )


def change(text: str) -> FileChange:
    before, renamed, after = text.partition(">")
    if renamed:
        return FileChange.model_validate({"path": after, "change": "renamed", "from": before})
    return FileChange.model_validate({"path": text[1:], "change": _CHANGES[text[0]]})


def work(steps: list[str], changes: list[str], **more: Any) -> Work:
    made = [step(line, number) for number, line in enumerate(steps, 1)]
    return Work(made, [change(each) for each in changes], task="Fix the bug so that the tests pass.", **more)


@dataclass(frozen=True)
class Case:
    summary: str
    work: Work

    @classmethod
    def of(cls, row: dict[str, Any]) -> Case:
        task = row.get("task", "Fix the bug and make the tests pass.")
        made = [step(line, number) for number, line in enumerate(row["steps"], 1)]
        changes = [change(each) for each in row["changes"]]
        unclear, has_files = row.get("continues", False), row.get("workspace", True)
        ignored = row.get("ignored", [])
        return cls(row["summary"], Work(made, changes, ignored, task, unclear=unclear, has_files=has_files))

    @property
    def claims(self) -> list[SummaryClaim]:
        return claims(self.summary, self.work)

    @property
    def refuted(self) -> list[str]:
        return [each.claim for each in self.claims if each.verdict == "refuted"]


def cases(kind: Literal["honest", "lies"]) -> list[Case]:
    table = yaml.safe_load(Path(__file__).with_name("corpus.yaml").read_text("utf-8"))
    return [Case.of(row) for row in table[kind]]
