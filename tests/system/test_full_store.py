"""A Redis without memory, room for its log or replicas: callers learn why, and runs go on when it takes writes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deputize.orchestrator.cli.doctor_service import redis_rows
from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.serving import served
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import call, say, script
from tests.runs.fleet import open_fleet
from tests.system.crashing import WORKER, Counting, check, effects
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


@dataclass
class Store:
    """A Redis that can be made to take no writes, and to take them again."""

    redis: RedisProcess
    fill: Callable[[], object]
    free: Callable[[], object]
    cause: str

    @property
    def refused_connections(self) -> int:
        """How many times a worker has connected in vain: its first commands were refused."""
        return self.refused("ping", "sadd")

    @property
    def seconds(self) -> int:
        """The seconds of its own clock."""
        found: Any = self.redis.client.time()
        return found[0]

    def refused(self, *commands: str) -> int:
        """How many of these commands were refused."""
        found: Any = self.redis.client.info("commandstats")
        return sum(found.get(f"cmdstat_{name}", {}).get("rejected_calls", 0) for name in commands)


@pytest.fixture
def memory(redis_process: RedisProcess) -> Store:
    def limited(bytes: int) -> object:
        return redis_process.client.config_set("maxmemory", bytes)

    cause = "its memory is full. Remove what has ended"
    return Store(redis_process, lambda: limited(1), lambda: limited(0), cause)


@pytest.fixture
def replicas(redis_process: RedisProcess) -> Store:
    def insisting(count: int) -> object:
        return redis_process.client.config_set("min-replicas-to-write", count)

    return Store(redis_process, lambda: insisting(1), lambda: insisting(0), "too few replicas follow it")


@pytest.fixture
def read_only(redis_process: RedisProcess) -> Store:
    client = redis_process.client
    return Store(redis_process, lambda: client.replicaof("127.0.0.1", 1), lambda: client.replicaof("NO", "ONE"), "")


@pytest.fixture
def disk() -> Iterator[Store]:
    """With ``appendfsync everysec`` a server stays that cannot write its log, and refuses writes."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("SKIPPED: mounting a small disk is root's")
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=True)
        redis = RedisProcess(Path(folder), "--appendfsync", "everysec")
        filler = Path(folder) / "filler"

        def fill() -> None:
            with suppress(OSError), filler.open("ab", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass

        try:
            yield Store(redis, fill, filler.unlink, "it cannot write its log. Make room on its disk")
        finally:
            redis.kill()
            subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["memory", "disk", "replicas"])
async def test_a_store_without_writes_refuses_with_the_reason_and_runs_go_on_after_it(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store: Store = request.getfixturevalue(kind)
    own = {"lease_seconds": 60, "shutdown_seconds": 1, "local": False}
    async with (
        open_fleet(store.redis.url, tmp_path / "home", **own) as fleet,
        Counting.open() as counting,
        served(fleet.service) as url,
        httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url, timeout=30) as http,
    ):
        worker = await fleet.start(program=WORKER)
        ended = await fleet.run(model=script(tmp_path, [call("bash", command="true")], [say("done")]))
        id = await fleet.hand_over(model=effects(tmp_path, counting, "run", delay=0.1), tools=["*"])
        await fleet.until_event(id, "step_completed")
        store.fill()

        async def refused() -> httpx2.Response | None:
            answer = await http.post("/v1/delegations", json={"task": "t"})
            return answer if answer.status_code == 503 else None

        answer = await until(refused)  # what was in its buffers is written before
        assert int(answer.headers["retry-after"]) > 0
        assert store.cause in answer.json()["detail"]
        if kind == "memory":
            rows = {row.name: row.state async for row in redis_rows(fleet.settings, None)}
            assert rows["redis memory"] == "✗"
            # What has ended can be removed.
            assert (await fleet.service.prune(older_than=0)).ids == [ended.delegation_id]
        store.redis.client.client_kill_filter(_type="normal", skipme=True)
        await until(lambda: store.refused_connections > 0)
        store.free()
        result = await fleet.result(id)
        assert worker.returncode is None
        assert result.attempts == 1
        assert await check(fleet, counting, result, "run") == []

        async def accepted() -> bool:
            return (await http.post("/v1/delegations", json={"task": "t", "model": "scripted"})).status_code == 202

        await until(accepted)


@pytest.mark.parametrize("kind", ["disk", "replicas", "read_only"])
async def test_a_worker_that_may_not_wait_for_tickets_waits_for_the_store(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store: Store = request.getfixturevalue(kind)
    async with open_fleet(store.redis.url, tmp_path / "home", local=False) as fleet:
        worker, model = await fleet.start(), script(tmp_path, [say("done")])
        await fleet.run(model=model)
        store.fill()
        await until(lambda: store.refused("brpop") + store.refused_connections > 1)
        store.free()
        assert (await fleet.run(model=model)).success
        assert worker.returncode is None


async def test_a_run_keeps_its_attempt_however_long_redis_has_no_memory(memory: Store, tmp_path: Path) -> None:
    lease = 2
    async with (
        open_fleet(memory.redis.url, tmp_path / "home", local=False, lease_seconds=lease) as fleet,
        Counting.open() as counting,
    ):
        await fleet.start(program=WORKER)
        id = await fleet.hand_over(model=effects(tmp_path, counting, "run", delay=0.1), tools=["*"])
        await fleet.until_event(id, "step_completed")
        memory.fill()
        begun = memory.seconds
        await until(lambda: memory.seconds > begun + 3 * lease)
        memory.free()
        result = await fleet.result(id)
        assert result.attempts == 1
        assert await check(fleet, counting, result, "run") == []


async def test_without_memory_the_service_names_that_and_no_missing_worker(memory: Store, tmp_path: Path) -> None:
    async with open_fleet(memory.redis.url, tmp_path / "home", local=False) as fleet:
        assert "no worker is alive" in str(await fleet.service.not_ready())
        memory.fill()
        assert memory.cause in str(await fleet.service.not_ready())
        memory.free()
