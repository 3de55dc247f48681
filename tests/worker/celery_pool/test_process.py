"""The worker's command: what it refuses, and what it keeps from other processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system
ROOT = Path(__file__).parents[3]
PRIVATE = {
    "worker": "from deputize.shared.own_process import keep_memory_private; keep_memory_private()",
    "flower": "import deputize.shared.queue; deputize.shared.queue.app",
}


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: text for name, text in os.environ.items() if not name.startswith("DEPUTIZE_")}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=clean | environment, capture_output=True, text=True, timeout=30
    )


def test_a_worker_without_redis_names_the_setting() -> None:
    ended = run("-m", "deputize.worker")
    assert ended.returncode == 3
    assert "DEPUTIZE_REDIS_URL" in ended.stderr


@pytest.mark.long
def test_a_worker_that_cannot_reach_redis_reports_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    ended = run("-m", "deputize.worker", DEPUTIZE_REDIS_URL=f"redis://127.0.0.1:{port}")
    assert ended.returncode == 3
    assert "Redis does not answer" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.long
def test_a_service_that_cannot_reach_redis_ends_and_reports_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    url = f"redis://127.0.0.1:{port}"
    ended = run("-m", "deputize.orchestrator.serve", "--port", "0", DEPUTIZE_REDIS_URL=url, DEPUTIZE_TOKEN="secret")
    assert ended.returncode == 3
    assert "Redis does not answer" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_wrong_setting_is_named() -> None:
    ended = run("-m", "deputize.worker", "--concurrency", "0", DEPUTIZE_REDIS_URL="redis://127.0.0.1")
    assert ended.returncode == 3
    assert "concurrency" in ended.stderr


@pytest.mark.requirement("P-17")
@pytest.mark.skipif(sys.platform != "linux", reason="a promise of Linux")
@pytest.mark.parametrize("begin", PRIVATE.values(), ids=PRIVATE)
def test_a_workers_memory_is_closed_to_other_processes(begin: str) -> None:
    asked = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
    assert run("-c", f"{begin}\n{asked}", DEPUTIZE_REDIS_URL="redis://127.0.0.1:1").stdout.strip() == "0"
