"""Runs that are made to harm the worker that carries them out: each still ends with a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiktoken

from deputize.worker.tools.base import Effect, Kind, Params, Tool, ToolResult
from deputize.worker.tools.context import ToolContext
from tests.running import Bench, call, open_bench, say, script


class Panicking(Tool[Params]):
    """Calls a library that panics."""

    name = "panicking"
    kind = Kind.READ
    effect = Effect.PURE
    params = Params

    async def run(self, ctx: ToolContext, params: Params) -> ToolResult:
        encoding = tiktoken.Encoding("test", pat_str=r"\s+(?!\S)|\s+", mergeable_ranks={b" ": 0}, special_tokens={})
        return ToolResult(str(len(encoding.encode_ordinary(" " * 2_000_000))))


@pytest.mark.requirement("P-07")
@pytest.mark.parametrize("style", ["native", "xml"])
async def test_a_context_of_blanks_has_a_result(bench: Bench, tmp_path: Path, style: Any) -> None:
    model = script(tmp_path, [say("done")])
    limits = {"max_tokens": 3_000_000}
    result = await bench.run(model=model, context="a" + " " * 1_040_000 + "b", limits=limits, tool_call_style=style)
    assert (result.termination_reason, result.attempts) == ("completed", 1)


@pytest.mark.requirement("P-10")
async def test_a_library_that_panics_fails_the_call_and_not_the_run(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path, offered=[Panicking()]) as bench:
        model = script(tmp_path, [call("panicking")], [say("done")])
        result = await bench.run(model=model, tools=["panicking"])
    assert result.termination_reason == "completed"
    assert "panicking failed inside" in result.errors[0]
