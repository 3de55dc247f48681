"""A read-only delegation: what a server says of itself does not let it change the files."""

from __future__ import annotations

import json
from pathlib import Path

from tests.running import call, say, script
from tests.worker.mcp.entries import raw
from tests.worker.mcp.workers import configure, worker


async def test_a_servers_tool_that_claims_to_read_cannot_write(redis_url: str, tmp_path: Path) -> None:
    """The raw server notes every call in a file of the workspace, and says of this tool that it only reads."""
    configure(tmp_path, raw=raw())
    asked = [call("mcp__raw__environ")]
    async with worker(redis_url, tmp_path) as bench:
        may = await bench.run(model=script(tmp_path, asked, [say("Done.")]))
        may_not = await bench.run(model=script(tmp_path, asked, [say("Done.")]), approval_mode="readOnly")
    assert may.files_modified == ["notes"]
    assert (may_not.files_modified, may_not.termination_reason) == ([], "completed")
    assert may_not.errors == []


async def test_a_server_outside_of_the_sandbox_is_left_out_unless_it_is_trusted(redis_url: str, tmp_path: Path) -> None:
    configure(tmp_path, free=raw(sandbox=False), trusted=raw(sandbox=False, trust=True))
    async with worker(redis_url, tmp_path) as bench:
        result = await bench.run(model=script(tmp_path, [say("Done.")]), approval_mode="readOnly")
    (error,) = result.errors
    assert "'free' is left out: this delegation is read-only" in error


async def test_the_discovery_command_of_a_read_only_run_changes_nothing(redis_url: str, tmp_path: Path) -> None:
    said = json.dumps([{"name": "greet"}])
    discovery = {"discovery_command": f"touch planted; echo '{said}'", "call_command": "true"}
    async with worker(redis_url, tmp_path, mcp_config=None, tools=discovery) as bench:
        result = await bench.run(model=script(tmp_path, [say("Done.")]), approval_mode="readOnly")
    assert (result.files_modified, result.errors) == ([], [])
