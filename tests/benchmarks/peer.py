"""Our row in a table of agent loops: ``setup(base_url, var)`` and ``delegation(prompt)``, as the other rows have them.

One worker's services in this process over a real Redis: each delegation is accepted, claimed, carried out with its
durable events and history, and read back. Only Celery's queue is left out, because the other rows have none. ``TOOL``
and ``ARGS`` are words for the yardstick's mock, which fills in ``%i`` with the call's number.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a comparison loads this file by its path

from tests.benchmarks.parts import write_source
from tests.benchmarks.script import FILE
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import Bench, open_bench

TOOL = "read_file"
ARGS = f"arg.path={FILE} arg.limit=100%i"
WARM = 3

_opened = AsyncExitStack()
_there: dict[str, Any] = {}


async def setup(base_url: str, var: str = "") -> None:
    """Opens everything for as long as the process lives. ``var`` is not used."""
    folder = Path(tempfile.mkdtemp(prefix="peer-"))
    server = RedisProcess(folder / "redis")
    # The comparison may end by os._exit: this shell sees its input end however we go, and cleans up behind us.
    command = ["sh", "-c", 'cat; kill -9 "$0"; rm -rf "$1"', str(server.process.pid), str(folder)]
    _there["watcher"] = subprocess.Popen(command, stdin=subprocess.PIPE)
    endpoint = {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "benchmark-key"}
    opening = open_bench(server.url, folder / "home", model_endpoint=endpoint, model="mock")
    bench = await _opened.enter_async_context(opening)
    _there.update(bench=bench, source=write_source(folder / "source"))


async def delegation(prompt: str) -> str:
    """Carries out one delegation. Returns its summary."""
    bench: Bench = _there["bench"]
    result = await bench.run(prompt, workspace={"kind": "directory", "path": str(_there["source"])})
    return result.summary
