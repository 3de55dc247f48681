"""The MCP client against servers that others wrote, in the sandbox as every run starts them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import ErrorType
from deputize.worker.contracts import Command
from deputize.worker.tools.base import Effect, Kind
from tests.processes.leaks import ROOT
from tests.runs.toolbench import Toolbench, desk
from tests.worker.mcp.opening import opened

__all__ = ["desk"]

pytestmark = pytest.mark.system

BIN = Path(sys.executable).parent
NODE = ROOT / ".venv" / "bin" / "node"
PACKAGES = ROOT / ".venv" / "npm" / "node_modules" / "@modelcontextprotocol"


def npm(name: str, *args: str) -> dict[str, Any]:
    """The entry of a server from npm; skips at home and fails in CI where it is not installed."""
    program = PACKAGES / name / "dist" / "index.js"
    if not (NODE.exists() and program.exists()):
        reason = f"{name} or node is missing ({program}): run `make .venv/.npm-installed`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    return {"command": str(NODE), "args": [str(program), *args]}


async def repository(desk: Toolbench) -> None:
    """A git repository in the workspace, with one commit and one change, made as a command of a run would."""
    if desk.sandbox.program("git") is None:
        pytest.skip("there is no git here")
    me = "-c user.name=Somebody -c user.email=somebody@example.com"
    script = f"echo one >notes.txt; git init -q && git add . && git {me} commit -q -m Begin && echo two >>notes.txt"
    done = await desk.sandbox.run(Command(["sh", "-c", script], timeout=30))
    assert done.exit_code == 0, done.stderr


@pytest.mark.costly
async def test_servers_from_pypi_tell_the_time_and_read_a_repository(desk: Toolbench) -> None:
    await repository(desk)
    servers = {
        "time": {"command": str(BIN / "mcp-server-time"), "args": ["--local-timezone", "UTC"]},
        "git": {"command": str(BIN / "mcp-server-git"), "args": ["--repository", "${workspaceFolder}"]},
    }
    async with opened(desk, servers) as found:
        assert found.warnings == []
        time = await found.call(
            "mcp__time__convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"
        )
        assert "T21:00:00+09:00" in time.content
        assert time.data["target"]["timezone"] == "Asia/Tokyo"
        wrong = await found.call("mcp__time__get_current_time", timezone="Moon/Base")
        assert (wrong.success, wrong.error_type) == (False, ErrorType.EXECUTION_FAILED)
        assert "Moon/Base" in (wrong.error or "")
        diff = await found.call("mcp__git__git_diff_unstaged", repo_path="/workspace")
        assert "+two" in diff.content
        assert found.tools["mcp__git__git_diff_unstaged"].kind is Kind.READ
        assert found.tools["mcp__git__git_commit"].kind is Kind.OTHER


async def test_the_filesystem_server_works_on_the_workspace_and_on_nothing_else(desk: Toolbench) -> None:
    async with opened(desk, {"files": npm("server-filesystem", "/workspace")}) as found:
        assert found.warnings == []
        path = "/workspace/made/by/hand.txt"
        assert (await found.call("mcp__files__create_directory", path="/workspace/made/by")).success
        assert (await found.call("mcp__files__write_file", path=path, content="hello\n")).success
        assert (await found.call("mcp__files__read_text_file", path=path)).content == "hello\n"
        outside = await found.call("mcp__files__read_text_file", path="/etc/passwd")
        assert "Access denied" in (outside.error or "")
        assert found.tools["mcp__files__write_file"].effect is Effect.IDEMPOTENT
    assert desk.read("made/by/hand.txt") == b"hello\n"


async def test_everything_that_the_reference_server_does(desk: Toolbench) -> None:
    async with opened(desk, {"all": npm("server-everything")}) as found:
        assert found.warnings == []
        assert (await found.call("mcp__all__echo", message="ünï")).content == "Echo: ünï"
        assert (await found.call("mcp__all__get-sum", a=2, b=3)).content == "The sum of 2 and 3 is 5."
        environ = json.loads((await found.call("mcp__all__get-env")).content)
        assert environ["HOME"] == "/tmp"
        picture = (await found.call("mcp__all__get-tiny-image")).content
        assert "[image image/png, " in picture
        assert desk.read(picture.partition("saved as ")[2].partition("]")[0]).startswith(b"\x89PNG")
        structured = await found.call("mcp__all__get-structured-content", location="Chicago")
        assert structured.data == json.loads(structured.content)
        assert "demo://resource" in (await found.call("mcp__all__get-resource-links", count=2)).content
        blob = await found.call("mcp__all__get-resource-reference", resourceType="Blob", resourceId=1)
        assert "saved as .deputize/mcp/" in blob.content
        refused = await found.call("mcp__all__get-resource-links", count=99)
        assert refused.error_type is ErrorType.INVALID_TOOL_PARAMS
        operation = "mcp__all__trigger-long-running-operation"
        assert (await found.call(operation, duration=0.5, steps=2)).success
        assert [fields["progress"] for _, fields in desk.news] == [1, 2]
