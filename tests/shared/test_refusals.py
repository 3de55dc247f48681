"""A Redis that refuses (permissions, memory, disk): what runs bears it, logs it once, and goes on when it is mended."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.cli.doctor_service import redis_rows
from deputize.shared.bus import Bus
from deputize.shared.connection import Pipe, connect
from deputize.shared.ids import new_id
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import LEASES
from deputize.shared.runs.store import RENEW, WRITING, RunStore
from deputize.shared.settings import Settings
from deputize.worker.__main__ import main
from tests.processes.redis_server import RedisProcess
from tests.waiting import until

WITHOUT_CHANNELS = ("ACL", "SETUSER", "default", "resetchannels")
WITH_CHANNELS = ("ACL", "SETUSER", "default", "allchannels")


@pytest.fixture
async def operator(redis_process: RedisProcess) -> AsyncIterator[Any]:
    """Another user of the server, who revokes permissions and grants them again."""
    async with connect(redis_process.url) as default:
        await default.execute_command("ACL", "SETUSER", "operator", "on", "nopass", "+@all", "~*", "&*")
    url = redis_process.url.replace("unix://", "unix://operator:x@", 1)
    async with connect(url) as client:
        yield client


def said(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [getattr(record, "cause", "") for record in caplog.records if words in record.getMessage()]


@pytest.mark.requirement("P-13")
async def test_a_bus_that_may_not_subscribe_reports_it_once_and_resumes_when_it_may(
    redis_process: RedisProcess, operator: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "deputize")
    async with connect(redis_process.url) as connection, Bus(connection) as bus, bus.listen("deputize:test") as before:
        await operator.execute_command(*WITHOUT_CHANNELS)
        await until(lambda: said(caplog, "does not hear Redis"))
        entering = asyncio.create_task(_first(bus, "deputize:test2"))
        await operator.execute_command(*WITH_CHANNELS)
        await until(lambda: _published(operator, "deputize:test2"))
        assert await asyncio.wait_for(entering, 30) == "news"
        await until(lambda: _published(operator, "deputize:test"))
        await until(lambda: not before.empty())
        assert said(caplog, "recovered")
    causes = said(caplog, "does not hear Redis")
    assert len(causes) == len(set(causes))
    assert any("NoPermissionError" in cause for cause in causes)


async def _first(bus: Bus, channel: str) -> str | None:
    async with bus.listen(channel) as listener:
        while (message := await listener.get()) is None:
            pass
        return message


async def _published(operator: Any, channel: str) -> bool:
    return await operator.publish(channel, "news") > 0


@pytest.mark.parametrize(
    ("refuse", "allow"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
        (("ACL", "SETUSER", "default", "-evalsha"), ("ACL", "SETUSER", "default", "+evalsha")),
        (("ACL", "SETUSER", "default", "-script"), ("ACL", "SETUSER", "default", "+script")),
        (("ACL", "SETUSER", "default", "resetkeys", "~other"), ("ACL", "SETUSER", "default", "allkeys")),
        (("ACL", "SETUSER", "default", "-hset"), ("ACL", "SETUSER", "default", "+hset")),
        (("CONFIG", "SET", "min-replicas-to-write", "1"), ("CONFIG", "SET", "min-replicas-to-write", "0")),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
    ],
)
async def test_what_is_written_to_a_server_that_refuses_waits_and_is_written_later(
    redis_process: RedisProcess,
    operator: Any,
    caplog: pytest.LogCaptureFixture,
    refuse: tuple[str, ...],
    allow: tuple[str, ...],
) -> None:
    request = DelegationRequest(task="do it")
    async with connect(redis_process.url) as reading, connect(redis_process.url, timeout=None) as writing:
        store = RunStore(reading, 60)
        id = (await store.accept([(new_id(), request, Limits())], 30))[0].id
        await operator.execute_command(*refuse)
        async with Pipe(writing, WRITING) as pipe:
            claiming = asyncio.create_task(store.claim(id, "token", "worker-1", 10, pipe=pipe))
            await until(lambda: said(caplog, "does not take this write"))
            assert not claiming.done()
            await operator.execute_command(*allow)
            claim = await asyncio.wait_for(claiming, 30)
    assert claim is not None
    assert claim.attempt == 1


async def test_a_mistake_in_a_command_is_an_answer_and_not_tried_again(redis_process: RedisProcess) -> None:
    async with connect(redis_process.url) as client, connect(redis_process.url, timeout=None) as writing:
        await client.set(LEASES, "no sorted set")
        async with Pipe(writing, [RENEW]) as pipe:
            keys, runs = [LEASES, "deputize:test"], [{"id": "id", "fence": ""}]
            assert await pipe.script(RENEW, keys, {"lease_ms": 1000, "runs": runs}) == ["fenced"]
            await client.hset("deputize:test", "fence", "1:x")
            with pytest.raises(Exception, match="WRONGTYPE"):
                await pipe.script(RENEW, keys, {"lease_ms": 1000, "runs": [{"id": "id", "fence": "1:x"}]})


async def test_doctor_tries_to_subscribe(redis_process: RedisProcess, operator: Any) -> None:
    await operator.execute_command(*WITHOUT_CHANNELS)
    settings = Settings.load(environ={}, redis_url=redis_process.url)
    rows = [row async for row in redis_rows(settings, None) if row.name == "acl"]
    assert [row.state for row in rows] == ["✗"]
    assert "the channels deputize:*" in rows[0].remedy


async def test_a_worker_that_may_not_subscribe_ends_with_one_line(
    redis_process: RedisProcess, operator: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await operator.execute_command(*WITHOUT_CHANNELS)
    monkeypatch.setenv("DEPUTIZE_REDIS_URL", redis_process.url)
    assert await asyncio.to_thread(main, []) == 3
    said = capsys.readouterr().err.strip()
    assert said.startswith(f"worker: redis_url ({redis_process.url}): Redis refuses commands of deputize: ")
    assert "\n" not in said


async def test_a_worker_that_may_not_read_the_queue_ends_with_one_line(
    redis_process: RedisProcess, operator: Any, tmp_path: Path
) -> None:
    await operator.execute_command("ACL", "SETUSER", "default", "-brpop")
    given = {"DEPUTIZE_REDIS_URL": redis_process.url, "DEPUTIZE_HOME": str(tmp_path), "DEPUTIZE_MODEL": "scripted"}
    pipe = asyncio.subprocess.PIPE
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deputize.worker", env=os.environ | given, stdout=pipe, stderr=pipe
    )
    said = (await worker.communicate())[1].decode()
    assert worker.returncode == 3
    (line,) = [line for line in map(json.loads, said.splitlines()) if line["level"] == "critical"]
    assert "Redis refuses commands of deputize: User default has no permissions to run the 'brpop'" in line["message"]
    assert "Traceback" not in said


async def test_a_worker_without_the_password_reports_that_one_is_required(
    redis_process: RedisProcess, operator: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await operator.config_set("requirepass", "right")
    monkeypatch.setenv("DEPUTIZE_REDIS_URL", redis_process.url)
    assert await asyncio.to_thread(main, []) == 3
    wanted = f"worker: redis_url ({redis_process.url}): Redis wants a password: put it into "
    assert capsys.readouterr().err.startswith(wanted)
