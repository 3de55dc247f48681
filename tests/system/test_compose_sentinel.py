"""Redis with replicas and Sentinels as the compose file and its variant start it, with real servers: one is killed."""

from __future__ import annotations

import asyncio
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import randrange

import pytest
from redis import Redis
from redis.exceptions import RedisError

from deputize.orchestrator.redis_server import find_program
from deputize.shared.errors import Unavailable
from tests.runs.fleet import open_fleet
from tests.system.compose import ROOT, services_with
from tests.system.crashing import WORKER, Counting, check, effects
from tests.system.flower_page import flower_page
from tests.waiting import until, until_sync

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]
VARIANT = Path("orchestrator/compose/sentinel.yml")
SERVERS = ("redis", "redis-2", "redis-3")
SENTINELS = ("sentinel-1", "sentinel-2", "sentinel-3")
_NAME = re.compile(r"(?<![\w-])(?:redis(?:-\d)?|sentinel-\d)(?=[\s:]|$)")


def recipe() -> str:
    """The steps of both files that make what is secret of Redis."""
    first, further = ((ROOT / each).read_text("utf-8") for each in ("docker-compose.yml", VARIANT))
    steps = [line[1:].partition(" #")[0].strip() for line in (*first.splitlines()[:20], *further.splitlines()[:20])]
    starts = ("redis=", "replica=", "may=", "at=", "echo", "printf 'master", "printf 'sentinel")
    return "\n".join(each for each in steps if each.startswith(starts) and not each.endswith("deputize_token"))


class Store:
    """What the variant starts, each server at an address of this machine in place of its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        network = f"127.{randrange(1, 255)}.{randrange(1, 255)}"
        self.addresses = {name: f"{network}.{at}" for at, name in enumerate((*SERVERS, *SENTINELS), 1)}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "secrets").mkdir()
        (folder / "shared").symlink_to(ROOT / "shared")
        (folder / "valkey-server").symlink_to(find_program())
        subprocess.run(["sh", "-euc", recipe()], cwd=folder, check=True)
        self.url = self._here((folder / "secrets/redis_url").read_text().strip())

    def _here(self, text: str) -> str:
        return _NAME.sub(lambda name: self.addresses[name[0]], text)

    def start(self, name: str) -> None:
        own = self.folder / name
        own.mkdir(exist_ok=True)
        command = [self._here(each.replace("$$", "$")) for each in services_with(VARIANT)[name]["command"]]
        for place, folder in {"/data": own, "/run/secrets": self.folder / "secrets"}.items():
            command = [each.replace(place, str(folder)) for each in command]
        with (own / "log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*command, f"bind {self.addresses[name]}"],
                cwd=own,
                env={"PATH": f"{self.folder}:/usr/bin:/bin"},
                stdout=log,
                stderr=log,
            )

    def end(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def asked(self, sentinel: str, *words: str) -> str:
        with Redis(host=self.addresses[sentinel], port=26379, decode_responses=True) as client:
            return str(client.execute_command("SENTINEL", *words, "deputize"))

    def is_complete(self) -> bool:
        try:
            found = [self.asked(name, "MASTER") for name in SENTINELS]
        except RedisError:
            return False
        return all(len(re.findall(r"'num-(?:slaves|other-sentinels)'[:,] '?2\b", each)) == 2 for each in found)

    @property
    def primary(self) -> str:
        found = self.asked(SENTINELS[0], "GET-MASTER-ADDR-BY-NAME")
        return next(name for name, address in self.addresses.items() if f"'{address}'" in found)


@pytest.fixture
def store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        store = Store(Path(folder))
        try:
            for name in (*SERVERS, *SENTINELS):
                store.start(name)
            until_sync(store.is_complete, 60)
            yield store
        finally:
            for name in [*store.processes]:
                store.end(name)


@pytest.mark.costly
async def test_a_killed_primary_of_compose_is_replaced_and_no_effect_is_repeated(store: Store, tmp_path: Path) -> None:
    own = {"lease_seconds": 2, "shutdown_seconds": 1, "local": False, "redis": {"replicas": 1}}
    async with open_fleet(store.url, tmp_path / "home", **own) as fleet, Counting.open() as counting:
        await fleet.start("1", program=WORKER)
        runs = [f"run{number}" for number in range(4)]
        ids = [await fleet.hand_over(model=effects(tmp_path, counting, run, delay=0.2), tools=["*"]) for run in runs]
        await fleet.until_event(ids[0], "step_completed")
        assert store.primary == "redis"
        store.end("redis")
        await until(lambda: asyncio.to_thread(lambda: store.primary != "redis"), 60)
        begun = time.monotonic()

        async def accepts() -> bool:
            try:
                return bool(await fleet.hand_over(model="scripted", idempotency_key="after"))
            except Unavailable:
                return False

        await until(accepts, 30)
        print(f"accepts again {time.monotonic() - begun:.2f} s after the promotion")
        with flower_page(store.url, tmp_path) as page:
            assert [each["hostname"].partition("@")[0] for each in page.get("/workers?json=1")["data"]] == ["worker-1"]
        for run, id in zip(runs, ids, strict=True):

            async def finished(id: str = id) -> object:
                try:
                    return (await fleet.service.get(id)).result
                except Unavailable:
                    return None

            assert await check(fleet, counting, await until(finished, 60), run) == []
        conf, replaced = store.folder / "redis/server.conf", f"replicaof {store.addresses[store.primary]} 6379"
        store.start("redis")
        await until(lambda: replaced in conf.read_text(), 60)  # it counts where all of them are started anew


def test_the_servers_of_the_variant_are_set_as_the_one_without_it() -> None:
    alone = services_with(Path("docker-compose.yml"))["redis"]["command"]
    for name in SERVERS:
        started = services_with(VARIANT)[name]["command"][2]
        for option, value in zip(alone[2::2], alone[3::2], strict=True):
            assert f"'{option.removeprefix('--')} {value}'" in started
