"""What the numbers of prompt caching hand over: 64 delegations that share a context, or nothing; one of 20 turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest, DirectoryWorkspace
from tests.fake_model.cache import Block

COUNT = 64
TURNS = 20
DELAY = 0.5
"""Seconds from a request to the beginning of its reply."""
CONTEXT_TOKENS = 20_000
TASK_WORDS = "Answer this question with a short report, and name what it rests on: what follows from the background for"
MODEL = "claude-sonnet-5-5"


@dataclass(frozen=True)
class Work:
    """One batch. ``own_tokens`` are those of each first message that no other delegation sends."""

    requests: Sequence[DelegationRequest]
    own_tokens: int
    turns: int = 1
    """Replies of each."""

    def with_another_context(self) -> Work:
        """The same, but with a context that was never sent; all of them have the same again."""
        other = context()
        return replace(self, requests=[each.model_copy(update={"context": other}) for each in self.requests])


def shared_siblings() -> Work:
    """Same tools, system prompt and context; different tasks."""
    same, own = context(), own_system()
    return Work([_request(number, same, own) for number in range(COUNT)], tokens(f"# Task\n\n{_task(0)}"))


def unshared_siblings() -> Work:
    """Only the tools are the same, and an entry ends after the system prompt at the earliest."""
    return Work([_request(number, context(), own_system()) for number in range(COUNT)], 0)


def long_work(folder: Path) -> Work:
    """One small tool call a turn, and a report in the last one."""
    calls = [_call(number) for number in range(TURNS - 1)]
    script = {"turns": [{"blocks": [block]} for block in [*calls, {"type": "text", "text": "All files are read."}]]}
    request = DelegationRequest(
        task=f"Read the files one by one. FAKE: {json.dumps(script)}",
        model=MODEL,
        system_prompt=own_system(),
        workspace=DirectoryWorkspace(kind="directory", path=str(folder / "files")),
    )
    return Work([request], 0, TURNS)


def write_files(folder: Path) -> None:
    """What the calls read: files of 2,000 characters."""
    (folder / "files").mkdir()
    for number in range(TURNS - 1):
        lines = (f"{number:02} {line:02} {'the quick brown fox jumps again, ' * 3}"[:79] for line in range(25))
        (folder / "files" / _name(number)).write_text("\n".join(lines) + "\n")


def context() -> str:
    """A new text of so many tokens, as the fake model counts those of its block."""
    words = f"Background {new_id()}:" + " the quick brown fox jumps over the lazy dog" * CONTEXT_TOKENS
    size = 4 * CONTEXT_TOKENS - len(Block("messages", "", "user", _text("# Context\n\n")).canonical)
    return words[: size - 1] + "."


def own_system() -> str:
    return f"You work for the office {new_id()}."


def tokens(text: str) -> int:
    return Block("messages", "", "user", _text(text)).tokens


def _request(number: int, background: str, system: str) -> DelegationRequest:
    return DelegationRequest(task=_task(number), context=background, system_prompt=system, model=MODEL)


def _task(number: int) -> str:
    return " ".join([TASK_WORDS, *(f"part {number:02} of section {section:02}," for section in range(12)), "and why?"])


def _call(number: int) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number:02}", "name": "read_file", "input": {"path": _name(number)}}


def _name(number: int) -> str:
    return f"notes-{number:02}.txt"


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
