"""A command exchanges directories and files with links that lead out, as fast as it can, under the worker's hands."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from pathlib import Path

import pytest

from deputize.shared.delegation import StepStatus
from deputize.shared.errors import ErrorType, ToolError
from deputize.worker.workspace.files import Files
from tests.attacks.stage import MARK, Stage
from tests.runs.bench import call
from tests.waiting import until

pytestmark = pytest.mark.system
TRIES = 100_000
LEAST_TRIES = 20_000
"""Of the calls by the loop there are fewer, as each costs a hundred times as much."""
ROUNDS = 25
EXCHANGE = """
import ctypes, os, sys
absolute, up = sys.argv[1:]
rename = ctypes.CDLL(None).renameat2
os.makedirs("deep/er")
for name in ("one", "two"):
    os.mkdir(name)
    open(name + "/id_ed25519", "w").write("inside")
open("note", "w").write("inside")
os.symlink(absolute + "/.ssh", "link-one")
os.symlink(up + "/.ssh", "link-two")
os.symlink(up + "/.env", "link-note")
pairs = [(name.encode(), b"link-" + name.encode()) for name in ("one", "two", "note")]
open("exchanging", "w").close()
while not os.path.exists("stop"):
    for _ in range(200):
        for name, link in pairs:
            rename(-100, name, -100, link, 2)
        rename(-100, b"deep/er", -100, b"er", 0)
        rename(-100, b"er", -100, b"deep/er", 0)
"""
UP = "../../../../files"
"""From a workspace to the files of its user."""
FILES = ("one/id_ed25519", "two/id_ed25519", "note", "deep/er/../../two/id_ed25519", "deep/er/../../note")
CALLS = [
    *(call("read_file", path=path) for path in FILES),
    *(call("write_file", path=f"{folder}/planted", content="planted") for folder in ("one", "two")),
    call("write_file", path="note", content="inside"),
    call("edit_file", path="one/id_ed25519", old_string="inside", new_string="inside"),
    call("grep", pattern=MARK, path="two"),
    call("list_directory", path="one"),
    call("glob", pattern="two/**"),
    call("read_many_files", paths=["one/*", "two/id_ed25519", "note"]),
]


def hammer(folder: Path, tries: int) -> Counter[str]:
    """How often each thing came of reading, listing and writing there."""
    outcomes = Counter[str]()
    with Files(folder) as files:
        for number in range(tries):
            path = FILES[number % len(FILES)]
            try:
                if number % 50 == 0:
                    files.write(f"{path.rpartition('/')[0] or 'one'}/planted", b"planted")
                elif number % 50 == 1:
                    outcomes[" ".join(entry.name for entry in files.scan("two"))] += 1
                else:
                    outcomes[files.read(path).decode()] += 1
            except ToolError as error:
                outcomes[error.type] += 1
    return outcomes


@pytest.mark.costly
async def test_no_exchange_leads_out(stage: Stage) -> None:
    """Tries are counted in the layer that all file tools go through; the tools do the same by the loop meanwhile."""
    token = secrets.token_hex(8)
    begin = f"echo {token} > token; python3 - {stage.folder}/files {UP} <<'END'\n{EXCHANGE}\nEND"
    wait = call("bash", command="until [ -e exchanging ]; do sleep 0.02; done")
    copies = [call("call_subagent", task="child", workspace="copy", tools=["read_file"]) for _ in range(3)]
    turns = [[call("bash", command=begin, run_in_background=True), wait], CALLS * ROUNDS, copies]
    hold = [call("bash", command="until [ -e stop ]; do sleep 0.02; done; rm -r deep er link-*; true")]
    reads = [call("read_file", path=path) for path in FILES]
    limits = {"max_tool_calls": 2000, "max_tokens": 50_000_000}
    running = asyncio.create_task(stage.attack(*turns, hold, child=reads, limits=limits))
    folder = await until(lambda: begun(stage, token))
    try:
        outcomes = await asyncio.to_thread(hammer, folder, TRIES if stage.is_ours else LEAST_TRIES)
    finally:
        (folder / "stop").touch()
        outcome = await running
    assert outcome.result.termination_reason == "completed", outcome.result.errors
    assert [text for text in outcomes if MARK in text] == []
    assert outcomes["inside"] > 0
    assert outcomes[ErrorType.PATH_NOT_ALLOWED] > 0
    statuses = Counter(step.status for step in outcome.steps)
    assert statuses[StepStatus.FAILED] > 0
    assert statuses[StepStatus.COMPLETED] > len(copies)


def begun(stage: Stage, token: str) -> Path | None:
    """The workspace of the run that has that token, once its exchanges have begun."""
    found = stage.settings.workspaces.glob("*/files/exchanging")
    return next((path.parent for path in found if (path.parent / "token").read_text() == f"{token}\n"), None)
