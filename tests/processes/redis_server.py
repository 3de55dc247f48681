"""A real Redis for tests, as fixtures: one server for the session on a unix socket, empty for every test.

``redis_url`` is all that most tests need. ``redis_process`` can be killed, paused and started again.
Registered in ``tests/conftest.py``; nothing has to be imported.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import redis

from deputize.orchestrator.redis_server import EmbeddedRedis, prepare
from deputize.shared.errors import Misconfigured
from tests.processes.leaks import endless_keys, kept, wrongly_waiting
from tests.waiting import until_sync


class RedisProcess:
    """One server of a test's own. A killed one can be started again with its data."""

    def __init__(self, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.embedded: EmbeddedRedis = prepare(folder)
        self._options, self._environment = options, environment
        self.url = self.embedded.url
        self.client = redis.Redis.from_url(self.url)
        """Kept: a connection costs as much as ten commands."""
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [*self.embedded.command, *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            env=self._environment,
        )
        until_sync(self.answers)

    def answers(self) -> bool:
        try:
            return self.client.ping()
        except redis.RedisError:
            return False

    def kill(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()

    close = kill

    def empty(self) -> None:
        self.client.flushall()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisProcess]:
    """The session's server. Tests that kill it or count its keys take ``redis_process``."""
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:  # short: a socket's path is bounded
        server = _started(Path(folder))
        kept.update({server.process.pid, folder})
        yield server
        server.kill()


@pytest.fixture
def redis_url(redis_server: RedisProcess) -> Iterator[str]:
    """The address of a Redis with nothing in it, as ``unix://…``. No finished run may leave a key without an end."""
    redis_server.empty()
    yield redis_server.url
    assert not (left := endless_keys(redis_server.client)), f"keys without a time to live: {left}"
    assert not (waiting := wrongly_waiting(redis_server.client)), f"in the queue, and not to be started: {waiting}"


@pytest.fixture
def redis_process() -> Iterator[RedisProcess]:
    """A server of this test's own, to be killed or paused."""
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        server = _started(Path(folder))
        yield server
        server.kill()


def _started(folder: Path) -> RedisProcess:
    try:
        return RedisProcess(folder)
    except Misconfigured as missing:
        if os.environ.get("CI") == "true":  # a test that is skipped there would be a promise that is not kept
            raise
        pytest.skip(str(missing))
