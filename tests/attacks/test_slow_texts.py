"""Long texts that once took quadratic time, through every way into a worker: its other runs go on meanwhile."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.attacks.stage import Stage
from tests.runs.bench import call, say
from tests.worker.growing import SHAPES

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]
SIZE = 60_000
"""Characters; a line of 36,000 of them once stopped a worker for longer than its lease."""
SECONDS = 20
"""What ordinary work takes at most beside it; alone one or two seconds, on a busy machine five."""
KNOWN = ("'a(' again", "'[' again", "'(rm -rf ' again")
"""The first ones that were found; others are chosen by chance."""
TOOLS = ["*", "mcp__*"]
HONEST = [[call("write_file", path=f"{number}.txt", content="x"), call("bash", command="ls")] for number in range(5)]


def of_a_model(text: str) -> list[list[dict[str, Any]]]:
    """The text in each argument that something reads as more than a text."""
    edit = {"path": "t", "old_string": f"{text[1:]}z", "new_string": text}
    return [
        [say(text), call("write_file", path="t", content=text)],
        [
            *(call("bash", command=line) for line in (text, f"echo {text}", f"bash -c '{text}")),
            *(call(name, pattern=text) for name in ("grep", "glob")),
            *(call("read_file", path=path) for path in (text, f"/{text}")),
            call("edit_file", **edit),
            call("web_fetch", url=f"http://{text}"),
            call(text, text=text),
        ],
    ]


def of_a_tool(text: str) -> list[list[dict[str, Any]]]:
    """The text in the answers of a command, of the tools for files, and of an MCP server."""
    return [
        [call("write_file", path="t", content=text)],
        [
            *(call(tool, command="cat t; cat t >&2; false") for tool in ("bash", "mcp__planted__run")),
            *(call(tool, command="tr -d '\\n' <t") for tool in ("bash", "mcp__planted__run")),
            call("read_file", path="t"),
            call("grep", pattern="a"),
            call("read_many_files", paths=["t"]),
        ],
    ]


@pytest.mark.costly
@pytest.mark.parametrize("source", [of_a_model, pytest.param(of_a_tool, marks=pytest.mark.thorough)])
async def test_other_runs_go_on_beside_texts_that_are_slow_to_read(
    ordinary: Stage, source: Callable[[str], list[list[dict[str, Any]]]], is_thorough: bool
) -> None:
    ended = asyncio.Event()
    workspace = {"kind": "directory", "path": str(ordinary.folder / "files/project")}
    async with asyncio.TaskGroup() as beside:
        beside.create_task(honest(ordinary, ended))
        for shape in [*KNOWN, *random.sample([*SHAPES], 3 if is_thorough else 1)]:
            found = await ordinary.run(*source(SHAPES[shape](SIZE)), tools=TOOLS, workspace=workspace, wait=100)
            assert (found.result.termination_reason, found.result.attempts) == ("completed", 1), (shape, found.result)
        ended.set()


async def honest(stage: Stage, ended: asyncio.Event) -> None:
    """Works all the time, and asserts that it is not held up."""
    while not ended.is_set():
        began = time.monotonic()
        found = await stage.run(*HONEST)
        assert (found.result.termination_reason, found.result.attempts) == ("completed", 1), found.result
        assert (taken := time.monotonic() - began) < SECONDS, f"{taken:.0f} s for ordinary work"
