"""The MCP Inspector's command line, over both transports: a client that is not the SDK we serve with."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.sources import ROOT
from tests.orchestrator.command_line import PROGRAM, environment
from tests.orchestrator.fake_service import FakeService

pytestmark = pytest.mark.system

NODE = ROOT / ".venv" / "bin" / "node"
INSPECTOR = ROOT / ".venv/npm/node_modules/@modelcontextprotocol/inspector/clients/cli/build/index.js"


@pytest.fixture
def inspector() -> Path:
    """The program; skips at home and fails in CI where it is not installed."""
    if not (NODE.exists() and INSPECTOR.exists()):
        reason = f"the inspector or node is missing ({INSPECTOR}): run `make .venv/.npm-installed`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    return INSPECTOR


async def ask(inspector: Path, home: Path, *said: str) -> dict[str, Any]:
    variables = environment(HOME=str(home), NODE_DISABLE_COMPILE_CACHE="1")
    process = await asyncio.create_subprocess_exec(NODE, inspector, *said, env=variables, stdout=PIPE, stderr=PIPE)
    out, err = await asyncio.wait_for(process.communicate(), 100)
    assert process.returncode == 0, err.decode()
    return json.loads(out)


CALL = ("--method", "tools/call", "--tool-name", "delegate_start", "--tool-arg", "task=x", 'limits={"maxTurns":3}')


async def test_over_http_it_finds_portable_schemas_and_delegates(
    inspector: Path, url: str, service: FakeService, tmp_path: Path
) -> None:
    target = (f"{url}/mcp", "--transport", "http")
    tools = await ask(inspector, tmp_path, *target, "--method", "tools/list", "--strict")
    assert "delegate" in [tool["name"] for tool in tools["tools"]]
    said = (await ask(inspector, tmp_path, *target, *CALL))["structuredContent"]
    assert [said["id"]] == [*service.runs]
    assert said["effectiveLimits"]["maxTurns"] == 3
    uri = f"deputize://delegations/{said['id']}"
    read = await ask(inspector, tmp_path, *target, "--method", "resources/read", "--uri", uri)
    assert json.loads(read["contents"][0]["text"])["request"]["task"] == "x"


async def test_over_stdio_it_delegates(inspector: Path, url: str, service: FakeService, tmp_path: Path) -> None:
    # It passes on only the variables that it is told.
    said = await ask(inspector, tmp_path, PROGRAM, "mcp", "-e", f"DEPUTIZE_URL={url}", *CALL)
    assert [said["structuredContent"]["id"]] == [*service.runs]
