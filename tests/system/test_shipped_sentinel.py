"""Redis with replicas and Sentinels as Compose and Kubernetes start it, with real servers: the primary is killed."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from random import randrange

import pytest
import yaml
from redis import Redis
from redis.exceptions import RedisError

from deputize.orchestrator.redis_server import find_program
from deputize.shared.errors import Unavailable
from tests.runs.fleet import Fleet, open_fleet
from tests.system.compose import ROOT, services_with
from tests.system.crashing import WORKER, Counting, check, effects
from tests.system.flower_page import flower_page
from tests.waiting import until, until_sync

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]
VARIANT = Path("orchestrator/compose/sentinel.yml")
MANIFESTS = Path("orchestrator/kubernetes/sentinel")
NAMES = {
    "compose": ("redis", "redis-2", "redis-3", "sentinel-1", "sentinel-2", "sentinel-3"),
    "manifests": (
        *(f"redis-{number}.redis-nodes" for number in range(3)),
        *(f"sentinel-{number}.sentinel" for number in range(3)),
    ),
}
"""The servers, the primary first, and the Sentinels."""
_NAME = re.compile(r"(?<![\w-])(?:redis-\d\.redis-nodes|sentinel-\d\.sentinel|redis(?:-\d)?|sentinel-\d)(?=[\s:'\"]|$)")


def recipe(kind: str) -> str:
    """The steps of the files that make what is secret of Redis."""
    files = ["docker-compose.yml", VARIANT, *([MANIFESTS / "kustomization.yaml"] if kind == "manifests" else ())]
    heads = ((ROOT / each).read_text("utf-8").splitlines()[:20] for each in files)
    steps = [line[1:].partition(" #")[0].strip() for head in heads for line in head if line.startswith("#")]
    starts = ("redis=", "replica=", "may=", "at=", "echo", "printf 'master", "printf 'sentinel")
    return "\n".join(each for each in steps if each.startswith(starts) and not each.endswith("deputize_token"))


@cache
def manifests() -> Mapping[str, list[str]]:
    """The arguments of each pod with a name of its own."""
    command = ["kubectl", "kustomize", str(ROOT / MANIFESTS)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    sets = [each for each in yaml.safe_load_all(text) if each["kind"] == "StatefulSet"]
    return {each["metadata"]["name"]: each["spec"]["template"]["spec"]["containers"][0]["args"] for each in sets}


def command_of(kind: str, name: str) -> list[str]:
    if kind == "compose":
        return [each.replace("$$", "$") for each in services_with(VARIANT)[name]["command"]]
    pod, _, service = name.partition(".")
    return [each.replace(f"$HOSTNAME.{service}", name) for each in manifests()[pod.partition("-")[0]]]


class Store:
    """What a variant starts, each server at an address of this machine in place of its name."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind, self.names = folder, kind, NAMES[kind]
        network = f"127.{randrange(1, 255)}.{randrange(1, 255)}"
        self.addresses = {name: f"{network}.{at}" for at, name in enumerate(self.names, 1)}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "secrets").mkdir()
        (folder / "shared").symlink_to(ROOT / "shared")
        (folder / "valkey-server").symlink_to(find_program())
        subprocess.run(["sh", "-euc", recipe(kind)], cwd=folder, check=True)
        self.url = self._here((folder / "secrets/redis_url").read_text().strip())

    def _here(self, text: str) -> str:
        return _NAME.sub(lambda name: self.addresses.get(name[0], name[0]), text)

    def start(self, name: str) -> None:
        own = self.folder / name
        own.mkdir(exist_ok=True)
        command = [self._here(each) for each in command_of(self.kind, name)]
        for place, folder in {"/data": own, "/run/secrets": self.folder / "secrets"}.items():
            command = [each.replace(place, str(folder)) for each in command]
        with (own / "log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*command, f"bind {self.addresses[name]}"],
                cwd=own,
                env={"PATH": f"{self.folder}:/usr/bin:/bin", "HOSTNAME": name.partition(".")[0]},
                stdout=log,
                stderr=log,
            )

    def end(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def asked(self, sentinel: str, word: str) -> str:
        with Redis(host=self.addresses[sentinel], port=26379, decode_responses=True) as client:
            return str(client.execute_command("SENTINEL", word, "deputize"))

    def is_complete(self) -> bool:
        try:
            found = [self.asked(name, "MASTER") for name in self.names[3:]]
        except RedisError:
            return False
        return all(len(re.findall(r"'num-(?:slaves|other-sentinels)'[:,] '?2\b", each)) == 2 for each in found)

    @property
    def primary(self) -> str:
        found = self.asked(self.names[3], "GET-MASTER-ADDR-BY-NAME")
        return next(name for name, address in self.addresses.items() if f"'{address}'" in found)


@pytest.fixture(params=NAMES)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "manifests" and not shutil.which("kubectl"):
        pytest.skip("kubectl, which has kustomize, is not on the PATH")
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        store = Store(Path(folder), request.param)
        try:
            for name in store.names:
                store.start(name)
            until_sync(store.is_complete, 60)
            yield store
        finally:
            for name in [*store.processes]:
                store.end(name)


async def accepts(fleet: Fleet, key: str) -> bool:
    try:
        return bool(await fleet.hand_over(model="scripted", idempotency_key=key))
    except Unavailable:
        return False


@pytest.mark.costly
async def test_a_killed_primary_is_replaced_and_no_effect_is_repeated(store: Store, tmp_path: Path) -> None:
    own = {"lease_seconds": 2, "shutdown_seconds": 1, "local": False, "redis": {"replicas": 1}}
    async with open_fleet(store.url, tmp_path / "home", **own) as fleet, Counting.open() as counting:
        await until(partial(accepts, fleet, "before"), 60)
        await fleet.start("1", program=WORKER)
        runs = [f"run{number}" for number in range(4)]
        ids = [await fleet.hand_over(model=effects(tmp_path, counting, run, delay=0.2), tools=["*"]) for run in runs]
        await fleet.until_event(ids[0], "step_completed")
        old = store.primary
        assert old == store.names[0]
        store.end(old)
        await until(lambda: asyncio.to_thread(lambda: store.primary != old), 60)
        begun = time.monotonic()
        await until(partial(accepts, fleet, "after"), 30)
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
        conf, replaced = store.folder / old / "server.conf", f"replicaof {store.addresses[store.primary]} 6379"
        store.start(old)
        await until(lambda: replaced in conf.read_text(), 60)  # it counts where all of them are started anew


@pytest.mark.parametrize("kind", NAMES)
def test_the_servers_of_a_variant_are_set_as_the_one_without_it(kind: str) -> None:
    if kind == "manifests" and not shutil.which("kubectl"):
        pytest.skip("kubectl, which has kustomize, is not on the PATH")
    alone = services_with(Path("docker-compose.yml"))["redis"]["command"]
    started = command_of(kind, NAMES[kind][0])[2]
    for option, value in zip(alone[2::2], alone[3::2], strict=True):
        assert f"'{option.removeprefix('--')} {value}'" in started
