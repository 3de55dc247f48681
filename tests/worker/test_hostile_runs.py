"""Runs that are made to harm the worker that carries them out: each still ends with a result."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tiktoken

from deputize.worker.tools.base import AnyTool, Effect, Kind, Params, Tool, ToolResult
from deputize.worker.tools.context import InitContext, ToolContext
from tests.runs.bench import Bench, call, open_bench, say, script


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


class Exhausted(Tool[Params]):
    """Finds that the machine has run out of something, when it is called or before the first turn."""

    name = "exhausted"
    kind = Kind.READ
    effect = Effect.PURE
    params = Params

    def __init__(self, error: OSError, *, ready: bool) -> None:
        self.error, self.may_begin = error, ready

    async def ready(self, ctx: InitContext) -> AnyTool:
        if self.may_begin:
            return self
        raise ExceptionGroup("several", [self.error])

    async def run(self, ctx: ToolContext, params: Params) -> ToolResult:
        raise self.error


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "no space left on the worker's disk at /data/a; free some"),
        (errno.EDQUOT, "no space left on the worker's disk at /data/a; free some"),
        (errno.EMFILE, "the worker has too many open files; raise its limit (ulimit -n)"),
        (errno.ENFILE, "the worker has too many open files; raise its limit (ulimit -n)"),
        (errno.EAGAIN, "no memory or process is left for the worker ("),
    ],
)
async def test_what_the_machine_has_run_out_of_is_named_with_a_remedy(
    redis_url: str, tmp_path: Path, number: int, said: str, ready: bool
) -> None:
    tool = Exhausted(OSError(number, os.strerror(number), "/data/a"), ready=ready)
    async with open_bench(redis_url, tmp_path, offered=[tool]) as bench:
        model = script(tmp_path, [call("exhausted")], [say("done")])
        result = await bench.run(model=model, tools=["exhausted"])
    assert result.termination_reason == ("completed" if ready else "error")
    assert said in result.errors[0]
    assert "internal error" not in result.errors[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: mounting a small disk is root's")
async def test_a_directory_that_does_not_fit_on_the_disk_is_named_with_a_remedy(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/large").write_bytes(os.urandom(2_000_000))
    small = tmp_path / "home/workspaces"
    small.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", str(small)], check=True)
    try:
        async with open_bench(redis_url, tmp_path / "home") as bench:
            workspace = {"kind": "directory", "path": str(tmp_path / "source")}
            result = await bench.run(model=script(tmp_path, [say("done")]), workspace=workspace)
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert result.termination_reason == "error"
    assert result.summary.startswith("no space left on the worker's disk")
