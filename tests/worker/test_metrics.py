"""What a run adds to the totals of /metrics, and under which of their labels, of which there are few."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from deputize.shared.delegation import Status
from deputize.shared.errors import ErrorType, ToolError
from deputize.shared.metrics import FIRST_TOKEN, TOOL
from deputize.worker.fleet.status import loop_lag
from deputize.worker.tools.base import Kind, Origin, Params, Tool, ToolContext, ToolResult
from deputize.worker.tools.builtin import BUILTIN
from tests.fake_model import FakeModel, Turn, refuse, text
from tests.fake_model import call as asked
from tests.runs.asking import WRITE, answered, asking_bench, begun, questions, until_status
from tests.runs.bench import bench_at, call, open_bench, say, script, talking
from tests.runs.totals import check_totals, reported

MODEL = "claude-sonnet-5-5"


async def test_a_run_is_counted_with_its_turns_calls_and_tokens(redis_url: str, tmp_path: Path) -> None:
    turns = (
        Turn([asked("read_file", path="gone.txt"), asked("glob", pattern="*")], usage={"cache_read_input_tokens": 7}),
        Turn([asked("nonsense")], faults=[refuse(529, retry_after_ms="1")]),
        Turn([text("Done.")]),
    )
    async with talking(redis_url, tmp_path, *turns) as (bench, _):
        result = await bench.run()
        found = await check_totals(bench.store.redis)
    usage = result.usage
    assert usage.cache_read_tokens == 7
    assert usage.cost_usd
    assert found.pop(("deputize_cost_usd_total", MODEL)) == pytest.approx(usage.cost_usd, abs=1e-6)
    assert {key: value for key, value in found.items() if value and key[0].endswith(("_total", "_count"))} == {
        ("deputize_delegations_accepted_total",): 1,
        ("deputize_delegations_finished_total", "completed", "succeeded"): 1,
        ("deputize_turns_total",): 3,
        ("deputize_model_retries_total",): 1,
        ("deputize_tokens_total", "input", MODEL): usage.input_tokens,
        ("deputize_tokens_total", "output", MODEL): usage.output_tokens,
        ("deputize_tokens_total", "cache_read", MODEL): 7,
        (f"{FIRST_TOKEN.name}_count", MODEL): 3,
        (f"{TOOL.name}_count", "failed", "read_file"): 1,
        (f"{TOOL.name}_count", "completed", "glob"): 1,
    }


@pytest.mark.parametrize(
    ("asked_for", "label"),
    [
        (None, MODEL),
        (f"{MODEL}-20260101", MODEL),
        ("claude-opus-5", "claude-opus-5"),
        ("my-model-17", "other"),
        ("house", "house-7b"),
    ],
)
async def test_a_model_of_any_name_has_one_of_few_labels(
    redis_url: str, tmp_path: Path, asked_for: str | None, label: str
) -> None:
    tables = {"house": {"model": "house-7b"}}
    async with FakeModel([Turn([text("Done.")])]) as fake, bench_at(fake, redis_url, tmp_path, models=tables) as bench:
        result = await bench.run(model=asked_for)
        found = await check_totals(bench.store.redis)
    assert result.success
    assert found["deputize_tokens_total", "output", label] == result.usage.output_tokens
    assert {key[-1] for key in found if key[0] == "deputize_tokens_total"} == {label}


class Remote(Tool[Params]):
    """A tool of a server."""

    name = "any_name"
    kind = Kind.READ
    params = Params
    origin = Origin("mcp", "tracker", "any_name")

    async def run(self, ctx: ToolContext, params: Params) -> ToolResult:
        return ToolResult("ok")


class Unsafe(Tool[Params]):
    """A tool whose sandbox cannot be set up."""

    name = "unsafe"
    kind = Kind.READ
    params = Params

    async def run(self, ctx: ToolContext, params: Params) -> ToolResult:
        raise ToolError(ErrorType.SANDBOX_UNAVAILABLE, "no user namespaces")


async def test_tools_of_servers_and_failing_sandboxes_are_counted(redis_url: str, tmp_path: Path) -> None:
    model = script(tmp_path, [call("any_name"), call("unsafe")], [say("Done.")], price={"input": 1, "output": 1})
    async with open_bench(redis_url, tmp_path / "home", offered=(*BUILTIN, Remote(), Unsafe())) as bench:
        await bench.run(model=model, tools=["any_name", "unsafe"], approval_mode="auto")
        found = await check_totals(bench.store.redis)
    assert {key: value for key, value in found.items() if key[0] == f"{TOOL.name}_count"} == {
        (f"{TOOL.name}_count", "completed", "mcp:tracker"): 1,
        (f"{TOOL.name}_count", "failed", "unsafe"): 1,
    }
    assert found["deputize_sandbox_failures_total",] == 1
    assert found["deputize_cost_usd_total", "scripted"] > 0


async def test_why_runs_wait_is_reported_while_they_do(redis_url: str, tmp_path: Path) -> None:
    waiting = ("deputize_delegations_waiting", "permission")
    async with asking_bench(redis_url, tmp_path / "home") as bench:
        id, run = await begun(bench, script(tmp_path, [WRITE], [say("done")]))
        (request,) = await questions(bench)
        await until_status(bench, id, Status.WAITING)
        before = await reported(bench.store.redis)
        await answered(bench, request, "proceed_once")
        await run
        after = await check_totals(bench.store.redis)
    assert (before[waiting], before["deputize_permissions_pending",], before["deputize_delegations_running",]) == (
        1,
        1,
        0,
    )
    assert (after[waiting], after["deputize_permissions_pending",]) == (0, 0)


async def test_how_late_the_event_loop_is_is_measured() -> None:
    measuring = asyncio.create_task(loop_lag(0.2))
    await asyncio.sleep(0)
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    assert 0.15 < await measuring < 30
