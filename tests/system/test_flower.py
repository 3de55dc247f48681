"""Flower beside a real worker: what an operator sees of a running delegation."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from deputize.orchestrator.supervisor import flower
from deputize.shared.queue import TASK, Ticket, create_app, send_tickets
from deputize.shared.settings import Settings
from tests.processes.preloaded import POOL_WORKER, Forked
from tests.processes.redis_server import RedisProcess
from tests.waiting import until_sync

pytestmark = pytest.mark.system


@dataclass
class Page:
    """Flower's API, with or without its password."""

    url: str

    def get(self, path: str, *, password: bool = True) -> Any:
        address = urlsplit(self.url)
        request = urllib.request.Request(f"http://{address.hostname}:{address.port}{path}")
        if password:
            user = base64.b64encode(f"{address.username}:{address.password}".encode()).decode()
            request.add_header("Authorization", f"Basic {user}")
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)

    def task(self, id: str) -> dict[str, Any]:
        try:
            return self.get(f"/api/task/info/{id}")
        except (OSError, json.JSONDecodeError):
            return {}


@pytest.fixture
def page(redis_process: RedisProcess, tmp_path: Path) -> Iterator[Page]:
    settings = Settings.load(environ={}, redis_url=redis_process.url, home=tmp_path)
    url, program = flower(settings.child_environment(), tmp_path)
    with (tmp_path / "flower.log").open("wb") as log:
        processes = [
            subprocess.Popen(program.command, env=dict(program.environment), cwd=tmp_path, stdout=log, stderr=log),
            Forked(POOL_WORKER, [redis_process.url], os.environ, stdout=log.fileno(), stderr=log.fileno()),
        ]
    yield Page(url)
    for process in processes:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def test_flower_shows_a_delegations_title_id_worker_and_present_step(page: Page, redis_process: RedisProcess) -> None:
    until_sync(lambda: _workers(page), timeout=45)
    app = create_app(Settings.load(environ={}), redis_process.url)
    send_tickets(app, [Ticket("dlg_1", title="Summarise the README")])
    app.close()
    task = until_sync(lambda: (found := page.task("dlg_1")).get("state") == "PROGRESS" and found, timeout=45)
    shown = {key: task[key] for key in ("name", "uuid", "args", "kwargs", "result")}
    assert shown == {
        "name": TASK,
        "uuid": "dlg_1",
        "args": "'Summarise the README'",
        "kwargs": "{}",
        "result": "step 3 of 6: read a.py",
    }
    assert task["worker"].startswith("worker-1@")


def test_flower_tells_nobody_who_has_not_its_password(page: Page) -> None:
    until_sync(lambda: _workers(page), timeout=45)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        page.get("/api/tasks", password=False)


def _workers(page: Page) -> Any:
    """The workers whose heartbeats Flower has heard; its /api/workers is asked for once, when it starts."""
    try:
        return page.get("/workers?json=1")["data"]
    except OSError:
        return None
