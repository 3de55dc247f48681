"""`deputize doctor`: it tells what is well from what is not, and says how to mend it."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest
import redis

from deputize.orchestrator.delegations import open_service
from deputize.orchestrator.home import SUPERVISOR_LOCK, StackInfo, open_private, try_lock, write_info
from deputize.orchestrator.sockets import free_port
from deputize.shared.catalog import Catalog
from deputize.shared.connection import connect
from tests.orchestrator.command_line import Done, deputize
from tests.orchestrator.fake_service import READ_FILE, worker_card
from tests.orchestrator.serving import served, settings
from tests.redis_server import RedisProcess


def rows(done: Done) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in map(json.loads, done.out.splitlines())}


def states(done: Done) -> dict[str, str]:
    return {name: row["state"] for name, row in rows(done).items()}


async def test_a_whole_service_is_well(redis_process: RedisProcess, tmp_path: Path) -> None:
    using = settings(redis_url=redis_process.url)
    async with served(lambda: open_service(using, redis_process.url), using) as url:
        async with connect(redis_process.url) as client:
            await Catalog(client).announce(worker_card(), [READ_FILE])
        done = await deputize(
            "doctor",
            "--json",
            DEPUTIZE_URL=url,
            DEPUTIZE_REDIS_URL=redis_process.url,
            DEPUTIZE_HOME=str(tmp_path),
            ANTHROPIC_API_KEY="sk-secret",
        )
    wanted = ("python", "home", "token", "model", "redis", "eviction", "aof", "clock", "service", "worker")
    assert {name: states(done)[name] for name in wanted} == dict.fromkeys(wanted, "ok")
    assert done.code == 0
    assert "sk-secret" not in done.out + done.err
    assert " ms" in rows(done)["redis"]["detail"]


async def test_on_a_fresh_machine_nothing_is_broken_and_every_warning_says_what_to_do(tmp_path: Path) -> None:
    done = await deputize("doctor", DEPUTIZE_HOME=str(tmp_path / "new"))
    assert done.code == 0
    lines = done.out.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("!"):
            assert lines[number + 1].strip().startswith("→ ")
    assert any("deputize up" in line for line in lines)
    assert any(line[2:].startswith("sandbox ") for line in lines)


@pytest.mark.parametrize(
    ("setting", "command", "broken"),
    [
        ("maxmemory-policy", "allkeys-lru", {"eviction": "broken"}),
        ("appendonly", "no", {"aof": "warning"}),
        ("appendfsync", "everysec", {"aof": "warning"}),
    ],
)
async def test_a_redis_that_may_lose_work_is_found(
    redis_process: RedisProcess, tmp_path: Path, setting: str, command: str, broken: dict[str, str]
) -> None:
    with redis.Redis.from_url(redis_process.url) as client:
        client.config_set(setting, command)
    done = await deputize("doctor", "--json", DEPUTIZE_REDIS_URL=redis_process.url, DEPUTIZE_HOME=str(tmp_path))
    assert broken.items() <= states(done).items()
    assert setting in rows(done)[next(iter(broken))]["remedy"]
    assert done.code == (3 if "broken" in broken.values() else 0)


async def test_what_does_not_answer_is_broken(tmp_path: Path) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    done = await deputize(
        "doctor",
        "--json",
        DEPUTIZE_URL=f"http://{nowhere}",
        DEPUTIZE_REDIS_URL=f"redis://{nowhere}",
        DEPUTIZE_HOME=str(tmp_path),
    )
    assert done.code == 3
    assert {"redis": "broken", "service": "broken"}.items() <= states(done).items()


async def test_a_service_without_workers_and_a_worker_without_a_sandbox_are_told(
    redis_process: RedisProcess, tmp_path: Path
) -> None:
    using = settings(redis_url=redis_process.url)
    async with served(lambda: open_service(using, redis_process.url), using) as url:
        done = await deputize("doctor", "--json", DEPUTIZE_URL=url, DEPUTIZE_HOME=str(tmp_path))
        assert done.code == 3
        assert rows(done)["workers"]["state"] == "broken"
        async with connect(redis_process.url) as client:
            await Catalog(client).announce(worker_card(sandbox="no user namespaces"), [])
        done = await deputize("doctor", "--json", DEPUTIZE_URL=url, DEPUTIZE_HOME=str(tmp_path))
    assert done.code == 0
    assert rows(done)["worker"]["state"] == "warning"
    assert "no user namespaces" in rows(done)["worker"]["detail"]


async def test_a_stack_that_is_only_read_needs_no_worker(redis_process: RedisProcess, tmp_path: Path) -> None:
    using = settings(redis_url=redis_process.url)
    async with served(lambda: open_service(using, redis_process.url), using) as url:
        with open_private(tmp_path / SUPERVISOR_LOCK, "ab") as lock:
            assert try_lock(lock, fcntl.LOCK_EX)
            for workers, state in ((0, "ok"), (1, "broken")):
                write_info(tmp_path, StackInfo(os.getpid(), url, "", redis_process.url, None, workers))
                done = await deputize("doctor", "--json", DEPUTIZE_HOME=str(tmp_path))
                assert rows(done)["workers"]["state"] == state
                assert done.code == (3 if workers else 0)


async def test_an_open_address_without_a_token_and_a_home_that_is_none_are_broken(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    done = await deputize("doctor", "--json", DEPUTIZE_HOST="0.0.0.0", DEPUTIZE_HOME=str(file / "below"))
    assert done.code == 3
    assert {"token": "broken", "home": "broken"}.items() <= states(done).items()


async def test_a_wrong_setting_is_a_row_too(tmp_path: Path) -> None:
    done = await deputize("doctor", "--json", DEPUTIZE_PORT="many")
    assert done.code == 3
    assert states(done) == {"settings": "broken"}
