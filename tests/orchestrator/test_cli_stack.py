"""`deputize up`, `demo` and a `run` without any service: the whole thing, as real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.cli.demo import parts
from shared.delegation import ToolAgentResult
from tests.orchestrator.command_line import deputize, started
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


async def test_what_up_runs_is_found_by_the_other_commands(tmp_path: Path) -> None:
    here = {"DEPUTIZE_HOME": str(tmp_path), "DEPUTIZE_MODEL": "scripted"}
    async with started("up", "--port", "0", "--workers", "2", **here) as stack:
        await until(lambda: b"Stop" in stack.out, 30)
        done = await deputize("run", "Look around", "--json", **here)
        result = ToolAgentResult.model_validate_json(done.out)
        assert (done.code, result.success) == (0, True)
        assert "not a language model" in done.err
        done = await deputize("show", result.delegation_id, "--json", **here)
        assert json.loads(done.out)["result"] == result.to_dict()
        assert len((await deputize("workers", **here)).out.splitlines()) == 2
        assert "read_file" in (await deputize("tools", **here)).out
        done = await deputize("up", **here)
        assert done.code == 3
        assert "already" in done.err
        stack.interrupt()
        done = await stack.done()
    assert done.code == 0
    said = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert said["API"].startswith("http://127.0.0.1:")
    assert said["Workers"].startswith("2,")
    assert "--flower" in said["Flower"]
    assert "Ctrl-C" in said["Stop"]


async def test_the_demo_shows_three_delegations_and_what_is_true_of_them(tmp_path: Path) -> None:
    done = await deputize("demo", DEPUTIZE_HOME=str(tmp_path))
    assert done.code == 0, done.out + done.err
    assert "a script plays the model's part" in " ".join(done.err.split())
    truths = [part.truth for part in parts({"kind": "empty"}, {"kind": "empty"}, None)]
    assert [line.removeprefix("✓ ") for line in done.out.splitlines() if line.removeprefix("✓ ") in truths] == truths
    assert "NOT TRUE" not in done.out
    assert "+        if subtotal >= DISCOUNT_FROM:" in done.out
    assert done.out.count(" run_finished") == 3
    assert "max_tool_calls" in done.out


async def test_without_a_service_run_brings_its_own(tmp_path: Path) -> None:
    done = await deputize("run", "Look around", DEPUTIZE_HOME=str(tmp_path), DEPUTIZE_MODEL="scripted")
    assert done.code == 0
    assert "no real model is configured" in done.out.replace("\n", " ")


async def test_detached_it_needs_a_service_that_stays(tmp_path: Path) -> None:
    done = await deputize("run", "x", "--detach", DEPUTIZE_HOME=str(tmp_path))
    assert done.code == 3
    assert "deputize up" in done.err
