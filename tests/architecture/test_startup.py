"""What each program of a stack imports, because a start waits for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT

pytestmark = pytest.mark.system

COMMAND = (
    "deputize.orchestrator.cli",
    "deputize.orchestrator.cli.run",
    "deputize.orchestrator.stack",
    "deputize.orchestrator.client",
    "deputize.shared.fleet",
    "deputize.shared.settings",
)
"""What ``deputize run`` imports, where it starts a stack."""
SERVERS = {"fastapi", "starlette", "uvicorn"}
QUEUE = {"celery", "kombu", "redis", "opentelemetry"}
OF_RUNS = {"anthropic", "mcp", "aiohttp", "jsonschema", "jsonschema_rs", "tiktoken", "rapidfuzz", "deputize.worker"}

OF_TRACES = {"opentelemetry.sdk.trace", "opentelemetry.exporter", "requests"}
"""What sends traces. redis-py imports what it finds of the SDK's metrics."""

FOR_HELP = {"asyncio", "ssl", "pydantic", "importlib.metadata", "deputize.shared.settings", "deputize.shared.masking"}
OF_A_RUN = {
    "deputize.worker.parts.table",
    *OF_TRACES,
    "deputize.worker.services",
    "deputize.worker.tools.builtin",
    "httpx2",
    "celery.worker.consumer",
}
"""What a worker imports beside the self-test of its sandbox."""

LEFT_OUT = [
    (("deputize.orchestrator.cli",), SERVERS | QUEUE | OF_RUNS | FOR_HELP | {"rich"}),
    (COMMAND, SERVERS | QUEUE | OF_RUNS | {"rich"}),
    (("deputize.orchestrator.supervisor",), SERVERS | QUEUE | OF_RUNS | {"rich", "click", "httpx2"}),
    (("deputize.orchestrator.serve",), OF_RUNS | {"rich", "httpx2", "celery.worker", "celery.apps"}),
    (
        ("deputize.worker.__main__",),
        SERVERS
        | OF_A_RUN
        | {"rich", "mcp", "anthropic", "aiohttp", "jsonschema", "jsonschema_rs", "deputize.orchestrator"},
    ),
    (
        ("deputize.worker.__main__", "deputize.worker.parts.table"),
        SERVERS | {"rich", "mcp", "anthropic", "aiohttp", "jsonschema", *OF_TRACES},
    ),
    (("deputize.worker.__main__", "deputize.worker.models.anthropic"), SERVERS | {"rich", "mcp", "anthropic"}),
]
PROGRAMS = ["help", "run", "supervisor", "serve", "worker", "of a run", "model"]


@pytest.mark.parametrize(("modules", "left_out"), LEFT_OUT, ids=PROGRAMS)
def test_a_program_of_a_stack_imports_only_what_it_needs(modules: tuple[str, ...], left_out: set[str]) -> None:
    imports = "\n".join(f"import {each}" for each in modules)
    script = f"import json, sys\n{imports}\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded: list[str] = json.loads(done.stdout)
    assert [each for each in loaded if each in left_out] == []
    # All that comes after it costs less.
    others = [each for each in ("asyncio", "click", "pydantic") if each in loaded]
    assert min(loaded.index(each) for each in others) > loaded.index("deputize.shared.startup")


@pytest.mark.parametrize(("endpoint", "loads"), [("", False), ("http://127.0.0.1:9", True)])
def test_without_an_endpoint_a_worker_loads_nothing_that_sends_traces(endpoint: str, loads: bool) -> None:
    opens = "async def main():\n    async with open_tracing('w') as tracing: print(tracing is not None)"
    imports = (
        "import asyncio, sys\nimport deputize.worker.parts.table\nfrom deputize.worker.tracing import open_tracing"
    )
    script = f"{imports}\n{opens}\nasyncio.run(main())\nprint(bool({OF_TRACES} & {{*sys.modules}}))"
    environ = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(loads)] * 2


def test_a_program_that_ends_does_not_look_through_all_its_objects() -> None:
    # What is registered first is called last.
    script = (
        "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count())); import deputize.orchestrator.cli"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 10_000
