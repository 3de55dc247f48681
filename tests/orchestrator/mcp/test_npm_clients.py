"""Clients from npm run a delegation: the MCP Inspector's command line over both transports, and the TypeScript SDKs."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.mcp.tools import TOOLS
from tests.architecture.sources import ROOT
from tests.orchestrator.command_line import PROGRAM, environment
from tests.orchestrator.fake_service import FakeService
from tests.waiting import until

pytestmark = pytest.mark.system

NODE = ROOT / ".venv" / "bin" / "node"
PACKAGES = ROOT / ".venv" / "npm" / "node_modules"
INSPECTOR = PACKAGES / "@modelcontextprotocol/inspector/clients/cli/build/index.js"
CALL = ("--method", "tools/call", "--tool-name", "delegate", "--tool-arg", "task=x", 'limits={"maxTurns":3}')
NEW, OLD = "@modelcontextprotocol/client", "@modelcontextprotocol/sdk/client"
SDKS = {
    "of 2026": (NEW, NEW, '{ versionNegotiation: { mode: "auto" } }'),
    "of 2025": (f"{OLD}/index.js", f"{OLD}/streamableHttp.js", "{}"),
}
"""The modules of each generation of the SDK for the client and its transport, and the options of the client."""
SCRIPT = """
import { Client } from "%s";
import { StreamableHTTPClientTransport } from "%s";

const client = new Client({ name: "test", version: "1" }, %s);
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2] as string)));
const { tools } = await client.listTools();
const result = await client.callTool({ name: "delegate", arguments: { task: "x", limits: { maxTurns: 3 } } });
console.log(JSON.stringify({ tools: tools.length, ...result }));
await client.close();
"""


@pytest.fixture
def node() -> Path:
    """The program; skips at home and fails in CI where it or the packages are not installed."""
    if missing := [str(path) for path in (NODE, INSPECTOR) if not path.exists()]:
        reason = f"{', '.join(missing)} is missing: run `make .venv/.npm-installed`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    return NODE


async def output(node: Path, home: Path, script: Path, *arguments: str) -> dict[str, Any]:
    variables = environment(HOME=str(home), NODE_DISABLE_COMPILE_CACHE="1")
    process = await asyncio.create_subprocess_exec(node, script, *arguments, env=variables, stdout=PIPE, stderr=PIPE)
    out, err = await asyncio.wait_for(process.communicate(), 100)
    assert process.returncode == 0, err.decode()
    return json.loads(out)


async def finish(service: FakeService) -> None:
    """Ends the delegation of a client that waits for it."""
    await until(lambda: service.following)
    (id,) = service.runs
    service.finish(id, summary="It is done.")


def check(result: dict[str, Any], service: FakeService) -> None:
    content = result["structuredContent"]
    (id,) = service.runs
    assert (content["id"], content["status"], content["summary"]) == (id, "succeeded", "It is done.")
    assert content["effectiveLimits"]["maxTurns"] == 3


@pytest.mark.costly
async def test_the_inspector_over_http_finds_portable_schemas_and_delegates(
    node: Path, url: str, service: FakeService, tmp_path: Path
) -> None:
    target = (INSPECTOR, f"{url}/mcp", "--transport", "http")
    tools = await output(node, tmp_path, *target, "--method", "tools/list", "--strict")
    assert "delegate" in [tool["name"] for tool in tools["tools"]]
    result, _ = await asyncio.gather(output(node, tmp_path, *target, *CALL), finish(service))
    check(result, service)
    uri = f"deputize://delegations/{result['structuredContent']['id']}"
    read = await output(node, tmp_path, *target, "--method", "resources/read", "--uri", uri)
    assert json.loads(read["contents"][0]["text"])["request"]["task"] == "x"


async def test_the_inspector_over_stdio_delegates(node: Path, url: str, service: FakeService, tmp_path: Path) -> None:
    # It passes on only the variables that its arguments name.
    asking = output(node, tmp_path, INSPECTOR, PROGRAM, "mcp", "-e", f"DEPUTIZE_URL={url}", *CALL)
    result, _ = await asyncio.gather(asking, finish(service))
    check(result, service)


@pytest.mark.parametrize("sdk", SDKS)
async def test_a_typescript_client_delegates(
    node: Path, url: str, service: FakeService, tmp_path: Path, sdk: str
) -> None:
    (tmp_path / "node_modules").symlink_to(PACKAGES)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "script.ts").write_text(SCRIPT % SDKS[sdk])
    result, _ = await asyncio.gather(output(node, tmp_path, tmp_path / "script.ts", f"{url}/mcp"), finish(service))
    check(result, service)
    assert result["tools"] == len(TOOLS)
