"""The store of prepared environments: what is kept, who waits for whom, and what is removed."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import EnvironmentFailed, NotFound
from deputize.shared.settings import Settings
from deputize.shared.settings.environments import EnvironmentSettings
from deputize.worker.environments.__main__ import prune
from deputize.worker.environments.environments import EnvironmentsOfWorker
from deputize.worker.environments.store import Facts, Store
from deputize.worker.fleet.janitor import Janitor, Presence
from deputize.worker.sandbox.bounds import WorkerBounds
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.project_tools import NO_TOOLS
from tests.runs.bench import Bench

DAY = 24 * 3600


def table(**more: Any) -> EnvironmentSettings:
    return EnvironmentSettings(**{"setup": "true", **more})


def keep(store: Store, key: str, size: int = 1, days: float = 0) -> str:
    """Puts one into the store that was used so many days ago."""
    store.finish(key, store.begin(key), Facts(key.rpartition("-")[0], [], size, 1.0, time.time()))
    moment = time.time() - days * DAY
    os.utime(store.folder / key, (moment, moment))
    store.write_log(key, "log")
    return key


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "environments").mkdir()
    return Store(tmp_path / "environments")


def test_what_was_not_used_for_too_long_and_the_oldest_that_are_too_much_are_removed(store: Store) -> None:
    old, new = keep(store, "shop-a", days=15), keep(store, "shop-b", days=1)
    large, larger, latest = (keep(store, f"site-{n}", 600 << 10, days) for n, days in (("a", 3), ("b", 2), ("c", 1)))
    nameless, recent = keep(store, "gone-a", days=15), keep(store, "gone-b")
    tables = {"shop": table(), "site": table(max_bytes=1 << 20)}
    assert sorted(store.evict(tables)) == sorted([old, large, larger, nameless])
    assert {each.key for each in store.kept()} == {new, latest, recent}
    assert {path.name for path in store.folder.glob("*.log")} == {f"{key}.log" for key in (new, latest, recent)}


def test_what_is_removed_by_name_is_listed_and_what_there_is_nothing_of_is_named(store: Store) -> None:
    settings = Settings(environments={"shop": table(), "site": table()})
    first, second, gone = keep(store, "shop-a"), keep(store, "shop-b"), keep(store, "gone-a", days=1)
    assert prune(store, settings, []) == "nothing is due"
    assert prune(store, settings, ["site", second, "site"]) == f"{second}  removed\nsite  nothing is prepared"
    assert prune(store, settings, ["shop", "gone", first]).splitlines() == [f"{first}  removed", f"{gone}  removed"]
    assert prune(store, settings, ["shop"]) == "shop  nothing is prepared"


@pytest.mark.parametrize("name", ["shp", "gone", "shop-b", ""])
def test_a_name_of_no_environment_is_refused_and_nothing_is_removed(store: Store, name: str) -> None:
    key = keep(store, "shop-a")
    with pytest.raises(
        NotFound, match=rf"nothing of '{name}' is prepared on this machine, and there is no environment"
    ):
        prune(store, Settings(environments={"shop": table()}), ["shop", name])
    assert [each.key for each in store.kept()] == [key]


def test_what_a_run_uses_stays_until_it_is_closed(store: Store) -> None:
    key = keep(store, "shop-a")
    used = store.use(key)
    assert used
    assert store.lock(key) is None
    assert store.remove([key]) == []
    used.close()
    assert store.remove([key]) == [key]
    assert store.use(key) is None


def test_while_one_prepares_the_others_find_nothing(store: Store) -> None:
    lock = store.lock("shop-a")
    assert lock is not None
    assert (store.lock("shop-a"), store.use("shop-a")) == (None, None)
    os.close(lock)
    again = store.lock("shop-a")
    assert again is not None
    os.close(again)


def test_a_half_is_none_of_those_that_are_kept(store: Store) -> None:
    half = store.begin("shop-a")
    (half / "facts.json").write_text("{}")
    assert store.kept() == []
    store.begin("shop-a")
    assert not half.exists()


def test_what_is_just_prepared_or_has_failed_since_is_listed_with_its_state(store: Store) -> None:
    def states() -> dict[str, str]:
        return {each.key: each.state for each in store.listed()}

    keep(store, "shop-a", days=1)
    locks = [store.lock(key) for key in ("shop-b", "site-c")]
    half = store.begin("shop-b")
    store.write_failure("site-c", "why")
    assert states() == {"shop-a": "ready", "shop-b": "preparing", "site-c": "failed"}
    again = store.begin("site-c")
    assert states()["site-c"] == "preparing"
    for lock in filter(None, locks):
        os.close(lock)  # as the kernel does after a crash
    assert states() == {"shop-a": "ready", "site-c": "failed"}
    for key, folder in (("shop-b", half), ("site-d", again)):
        store.finish(key, folder, Facts(key[:4], [], 1, 1.0, time.time()))
    assert states() == {"shop-a": "ready", "shop-b": "ready", "site-d": "ready"}
    assert [(each.facts.bytes, each.facts.environment) for each in store.listed()][-1] == (1, "shop")


def test_a_half_that_a_crash_left_is_removed_but_not_one_that_is_prepared_now(store: Store) -> None:
    lost, under_way = (store.lock(key) for key in ("shop-a", "shop-b"))
    assert lost is not None
    assert under_way is not None
    left, prepared = store.begin("shop-a"), store.begin("shop-b")
    os.close(lost)  # as the kernel does
    assert store.evict({}) == []
    assert (left.exists(), prepared.exists()) == (False, True)
    os.close(under_way)


async def test_the_janitor_removes_what_is_due_without_a_run_that_needs_it(bench: Bench) -> None:
    store = Store(bench.settings.prepared)
    store.folder.mkdir(parents=True)
    keep(store, "gone-a", days=15)
    recent = keep(store, "gone-b")
    presence = Presence(bench.store, bench.bus, "eye")
    await Janitor(bench.settings, bench.store, bench.bus, presence, bench.sent.extend).sweep(0)
    assert [each.key for each in store.kept()] == [recent]


async def test_runs_that_wait_for_a_preparation_fail_with_it(tmp_path: Path) -> None:
    """Else each of many siblings would wait for a set-up that takes minutes to fail."""
    assert await Bubblewrap.selftest() is None
    failing = table(setup="echo no such package; exit 1")
    settings = Settings.load(environ={}, home=tmp_path, environments={"shop": failing.model_dump()})
    environments = EnvironmentsOfWorker(settings, WorkerBounds(settings.sandbox))
    (base := tmp_path / "base").mkdir()
    reported: list[str] = []

    async def prepared() -> str:
        with pytest.raises(EnvironmentFailed, match="no such package") as failure:
            await environments.prepared("shop", failing, base, NO_TOOLS, reported.append)
        return str(failure.value)

    assert len({*await asyncio.gather(*(prepared() for _ in range(5)))}) == 1
    assert reported.count("preparing the environment shop") == 1
    await prepared()
    assert reported.count("preparing the environment shop") == 2
    assert [(each.environment, each.state) for each in environments.announced()] == [("shop", "failed")]
