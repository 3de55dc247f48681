"""What each program of a stack imports, because a start waits for it."""

from __future__ import annotations

import json
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

LEFT_OUT = [
    (COMMAND, SERVERS | QUEUE | OF_RUNS | {"rich"}),
    (("deputize.orchestrator.supervisor",), SERVERS | QUEUE | OF_RUNS | {"rich", "click", "httpx2"}),
    (("deputize.orchestrator.serve",), OF_RUNS | {"rich", "httpx2", "celery.worker", "celery.apps"}),
    (
        ("deputize.worker.__main__",),
        SERVERS | {"rich", "mcp", "anthropic", "aiohttp", "jsonschema", "jsonschema_rs", "deputize.orchestrator"},
    ),
    (("deputize.worker.__main__", "deputize.worker.models.anthropic"), SERVERS | {"rich", "mcp", "anthropic"}),
]


@pytest.mark.parametrize(("modules", "left_out"), LEFT_OUT, ids=["run", "supervisor", "serve", "worker", "model"])
def test_a_program_of_a_stack_imports_only_what_it_needs(modules: tuple[str, ...], left_out: set[str]) -> None:
    imports = "\n".join(f"import {each}" for each in modules)
    script = f"import json, sys\n{imports}\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded: list[str] = json.loads(done.stdout)
    assert [each for each in loaded if each in left_out] == []
    # All that comes after it costs less.
    assert loaded.index("deputize.shared.startup") < loaded.index("asyncio" if "asyncio" in loaded else "click")
    assert loaded.index("deputize.shared.startup") < loaded.index("pydantic")
