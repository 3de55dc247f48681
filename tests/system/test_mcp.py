"""`deputize mcp` as a client starts it: it brings its own stack with the first call, and takes it away again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.orchestrator.command_line import PROGRAM, environment
from tests.orchestrator.mcp.clients import connected, content, texts
from tests.system.stack_processes import ready
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

CHANGE = {"call": "write_file", "arguments": {"path": "a.txt", "content": "after\n"}}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose model changes a file and, for the task "slow", takes its time before."""
    turns = [[CHANGE], [{"text": "Changed it."}]]
    slow = [{"delay": 100, "blocks": [CHANGE]}, [{"text": "Late."}]]
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"rules": [{"match": {"contains": "slow"}, "turns": slow}, {"turns": turns}]}))
    return tmp_path / "home"


def server(home: Path, **variables: str) -> StdioServerParameters:
    project = home.parent / "project"
    project.mkdir()
    project.joinpath("a.txt").write_text("before\n")
    script = home.parent / "script.json"
    given = environment(DEPUTIZE_HOME=str(home), DEPUTIZE_MODEL=f"scripted:{script}") | variables
    return StdioServerParameters(command=PROGRAM, args=["mcp"], env=given, cwd=project)


@pytest.mark.costly
async def test_the_first_call_starts_what_it_needs_and_no_more(home: Path) -> None:
    parameters = server(home)
    async with Client(parameters) as client:
        await client.list_tools()
        assert (await client.list_resources()).resources == []
        assert not home.exists(), "a client that only looks at the tools starts nothing"
        assert content(await client.call_tool("delegations", {}))["items"] == []
        assert json.loads((home / "stack.json").read_text())["workers"] == 0, "reading goes on with no old work"
        workspace = {"kind": "directory", "path": "."}
        result = await client.call_tool("delegate", {"task": "change a.txt", "workspace": workspace})
        said = content(result)
        assert (said["success"], said["summary"].split("\n")[0], said["filesModified"]) == (
            True,
            "Changed it.",
            ["a.txt"],
        )
        assert (home.parent / "project" / "a.txt").read_text() == "before\n"
        stack = json.loads((home / "stack.json").read_text())
        async with connected("http", stack["url"], token=stack["token"]) as other:
            again = content(await other.call_tool("delegate_result", {"id": said["id"], "patch": True}))
        assert "-before\n+after\n" in again["patch"]
        assert {**again, "patch": None} == said


@pytest.mark.costly
async def test_a_client_that_is_gone_leaves_no_work_it_waited_for(home: Path) -> None:
    parameters = server(home)
    async with Client(parameters) as client:
        calling = asyncio.create_task(client.call_tool("delegate", {"task": "slow"}))
        stack = await until(lambda: home.joinpath("stack.json").exists() and stack_of(home))
        async with connected("http", stack["url"], token=stack["token"]) as other:
            (id,) = await until(lambda: ids(other, "running"))
    await asyncio.gather(calling, return_exceptions=True)
    async with Client(parameters) as client:
        result = await client.call_tool("delegate_result", {"id": id, "waitSeconds": 60})
    assert texts(result)[0].startswith(f"– {id} cancelled (cancelled)")


async def ids(client: Client, status: str) -> list[str]:
    listed = content(await client.call_tool("delegations", {"status": status}))
    return [item["id"] for item in listed["items"]]


def stack_of(home: Path) -> dict[str, Any]:
    """The stack, once its API answers."""
    stack = json.loads((home / "stack.json").read_text())
    return stack if ready(stack) else {}
