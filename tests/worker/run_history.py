"""The history of a run, as it is kept."""

from __future__ import annotations

import json
from typing import Any

from deputize.shared.delegation import ToolAgentResult
from tests.runs.bench import Bench, call

READ = call("read_file", path="a.txt")
WRITE = call("write_file", path="a.txt", content="one\n")


async def history_of(bench: Bench, result: ToolAgentResult) -> list[dict[str, Any]]:
    return [json.loads(entry) for entry in (await bench.store.conversation(result.delegation_id))[0]]


def answered_once(history: list[dict[str, Any]]) -> bool:
    """Whether every call has exactly one answer, in the message right after it, in the order of asking."""
    for asked, answer in zip(history, [*history[1:], {"role": "user", "content": []}], strict=True):
        calls = [block["id"] for block in asked["content"] if block["type"] == "tool_use"]
        answers = [block["tool_use_id"] for block in answer["content"] if block["type"] == "tool_result"]
        if asked["role"] == "assistant" and calls != answers:
            return False
    return True
