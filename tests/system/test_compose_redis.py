"""The Redis of the compose file: a user of its own, made as the file's first lines say."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from redis.exceptions import NoPermissionError

from deputize.orchestrator.redis_server import find_program
from deputize.shared.redis_access import reach
from tests.system.compose import ROOT, service, shell
from tests.waiting import until_sync

pytestmark = pytest.mark.system


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """The secrets of Redis, made as the first lines of the compose file say."""
    lines = [line.removeprefix("#").strip() for line in (ROOT / "docker-compose.yml").read_text().splitlines()[:20]]
    steps = [line for line in lines if line.startswith("redis=") or "secrets/redis_" in line]
    (tmp_path / "secrets").mkdir()
    (tmp_path / "shared").symlink_to(ROOT / "shared")
    subprocess.run(["sh", "-euc", "\n".join(steps)], cwd=tmp_path, check=True)
    return tmp_path / "secrets"


def test_redis_has_one_user_with_the_least_rights(recipe: Path, tmp_path: Path) -> None:
    socket = tmp_path / "r.sock"
    command = [str(find_program()), str(recipe / "redis_conf"), "--port", "0", "--unixsocket", str(socket)]
    server = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        until_sync(socket.exists)
        parts = urlsplit((recipe / "redis_url").read_text().strip())
        reach(f"unix://{parts.username}:{parts.password}@{socket}")
        with redis.Redis.from_url(f"unix://{parts.username}:{parts.password}@{socket}") as client:
            for denied in (client.flushall, partial(client.get, "other"), client.config_get):
                with pytest.raises(NoPermissionError):
                    denied()
        with redis.Redis.from_url(f"unix://{socket}") as anyone, pytest.raises(redis.AuthenticationError):
            anyone.ping()
    finally:
        server.kill()
        server.wait()


def test_the_check_of_redis_logs_in_as_its_user(recipe: Path, tmp_path: Path) -> None:
    _, command = service("redis")["healthcheck"]["test"]
    password = urlsplit((recipe / "redis_url").read_text()).password
    (recipe / "valkey-cli").write_text(
        f'#!/bin/sh\n[ "$REDISCLI_AUTH $*" = "{password} --user deputize --no-auth-warning ping" ] && echo PONG\n'
    )
    (recipe / "valkey-cli").chmod(0o755)
    assert shell(command, recipe, secrets="/run/secrets").returncode == 0
