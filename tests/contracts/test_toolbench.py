"""The toolbench, on which tests of tools stand, answers as a run does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.runs.bench import Bench, call, say, script
from tests.runs.nesting import begin, by_task, carrying_out
from tests.runs.toolbench import Toolbench

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {"path": "notes.txt"}),
    ("read_file", {"path": "none.txt"}),
    ("read_file", {"pth": "notes.txt"}),
    ("read_file", {"path": "/etc/passwd"}),
    ("edit_file", {"path": "notes.txt", "old_string": "one", "new_string": "two"}),
    ("edit_file", {"path": "notes.txt", "old_string": "one", "new_string": "two"}),
    ("bash", {"command": "pwd; cat notes.txt >&2; exit 3"}),
    ("bash", {"command": "no-such-program"}),
    ("glob", {"pattern": "*.txt"}),
    ("grep", {"pattern": "two"}),
    ("write_file", {"path": "new.txt", "content": "new\n"}),
    ("bash", {"command": "seq 1 40000"}),
]
"""A call and what its tool may find: successes, failures, arguments that are not valid, an answer that is cut."""


async def answers(bench: Bench, id: str) -> list[str]:
    """What the tool calls of a run were answered, in order."""
    messages = [json.loads(entry) for entry in (await bench.store.conversation(id))[0]]
    blocks = [block for message in messages if message["role"] == "user" for block in message["content"]]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


def alike(text: str) -> str:
    """Without ids of calls and delegations, and without hashes."""
    return re.sub(r"call[-_]\d+(_\d+)?|dlg_[0-9a-z]{26}|\b[0-9a-f]{40}\b", "…", text)


async def test_every_call_is_answered_as_in_a_run(bench: Bench, desk: Toolbench, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "notes.txt").write_text("one\n")
    desk.write("notes.txt", "one\n")
    model = script(tmp_path, *([call(name, **arguments)] for name, arguments in CALLS), [say("Done.")])
    result = await bench.run(model=model, workspace={"kind": "directory", "path": str(source)})
    in_a_run = await answers(bench, result.delegation_id)
    on_the_bench = [(await desk.call_with(name, arguments)).for_model for name, arguments in CALLS]
    assert list(map(alike, on_the_bench)) == list(map(alike, in_a_run))


async def test_its_subagents_report_as_those_of_a_run(bench: Bench, desk: Toolbench, tmp_path: Path) -> None:
    task = "the piece"
    write = call("write_file", path="made.txt", content=f"{task}\n")
    model = by_task(tmp_path, parent=[[call("call_subagent", task=task)], [say("Done.")]], piece=[[write], [say(task)]])
    async with carrying_out(bench):
        id, running = await begin(bench, model=model)
        await running
    (in_a_run,) = await answers(bench, id)
    on_the_bench = await desk.call("call_subagent", task=task)
    assert alike(on_the_bench.for_model) == alike(in_a_run)
