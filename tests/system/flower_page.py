"""Flower as an operator has it, with its API."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deputize.orchestrator.supervisor import flower
from deputize.shared.settings import Settings
from tests.waiting import until_sync


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


def _workers(page: Page) -> Any:
    """The workers whose heartbeats Flower has heard; its /api/workers is asked for once, when it starts."""
    try:
        return page.get("/workers?json=1")["data"]
    except OSError:
        return None


@contextmanager
def flower_page(redis_url: str, home: Path) -> Iterator[Page]:
    """Flower, once it shows the worker: from then on it receives all of the worker's events."""
    settings = Settings.load(environ={}, redis_url=redis_url, home=home)
    url, program = flower(settings.child_environment(), home)
    with (home / "flower.log").open("wb") as log:
        process = subprocess.Popen(program.command, env=dict(program.environment), cwd=home, stdout=log, stderr=log)
    try:
        page = Page(url)
        until_sync(lambda: _workers(page), timeout=45)
        yield page
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
