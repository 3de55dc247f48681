"""What is missing is said before anything is started: no model, no Redis."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.redis_server import find_program
from deputize.orchestrator.sockets import free_port
from tests.orchestrator.command_line import deputize


async def test_without_a_model_nothing_is_started(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"task": "x"}')
    for command in (["run", "x"], ["batch", str(tasks)]):
        done = await deputize(*command, DEPUTIZE_HOME=str(tmp_path / "home"))
        assert (done.code, done.out) == (3, "")
        assert "set ANTHROPIC_API_KEY" in done.err
    assert not tmp_path.joinpath("home", "logs").exists()


@pytest.mark.parametrize("command", [["run", "x"], ["list"], ["up"], ["serve", "--port", "0"]], ids=" ".join)
@pytest.mark.parametrize("kind", ["closed", "scheme", "password"])
async def test_a_wrong_redis_is_told_and_nothing_waits_for_it(tmp_path: Path, command: list[str], kind: str) -> None:
    with password_redis(tmp_path) if kind == "password" else nullcontext(free_port()) as port:
        url = "http://x" if kind == "scheme" else f"redis://127.0.0.1:{port}"
        here: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path / "home"), "DEPUTIZE_MODEL": "scripted"}
        done = await deputize(*command, DEPUTIZE_REDIS_URL=url, **here)
    assert (done.code, done.out) == (3, "")
    assert "DEPUTIZE_REDIS_URL" in done.err
    assert not re.search(r"\.[.;)]", done.err)
    assert kind != "password" or "wants a password" in done.err
    assert not tmp_path.joinpath("home", "logs").exists()


@contextmanager
def password_redis(folder: Path) -> Iterator[int]:
    port = free_port()
    command = [str(find_program()), "--port", str(port), "--bind", "127.0.0.1", "--requirepass", "secret", "--save", ""]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as server:
        try:
            yield port
        finally:
            server.kill()
