"""Two attempts of a run that have the same number: a failover of Redis has lost the claim of the first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from redis.asyncio import Redis

from deputize.shared.events import ProgressMade
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import LEASES
from deputize.shared.runs.record import Past
from deputize.worker.contracts import StopSignal
from deputize.worker.run_files import discard_files
from deputize.worker.task import carry_out, run_of
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.waiting import until
from tests.worker.verification.held import CANARY, GOOD, grounds_in
from tests.worker.verification.held import HELD as HELD_CHECK

HELD = call("bash", command="echo 1 >> log; until [ -e go ]; do sleep 0.05; done")


def asking(model: str) -> DelegationRequest:
    asked = {"task": "do it", "model": model, "verify": [{**HELD_CHECK, "canary": CANARY}], "verify_early": False}
    return DelegationRequest.model_validate(asked)


async def waits_for_base(bench: Bench, id: str) -> bool:
    return any("still runs on the files" in each.message for each in await bench.seen(id, ProgressMade))


@pytest.fixture
async def bench(redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    """A worker that learns by its next write that its claim is lost, and not before."""
    async with open_bench(redis_url, tmp_path / "home", lease_seconds=60) as bench:
        yield bench


@pytest.fixture
async def other(bench: Bench) -> AsyncIterator[Bench]:
    """Another worker, with the same files."""
    async with open_bench(bench.settings.redis_url or "", bench.settings.home, name="worker-2") as other:
        yield other


@asynccontextmanager
async def claim_lost(bench: Bench, id: str) -> AsyncIterator[None]:
    """Redis forgets what is written within the block."""
    async with Redis.from_url(bench.settings.redis_url or "") as redis:  # the dumps are bytes
        before = {key: await redis.dump(key) for key in await redis.keys(f"*{id}*")}
        due = await redis.zscore(LEASES, id)
        yield
        for key in await redis.keys(f"*{id}*"):
            await redis.delete(key)
        for key, dump in before.items():
            await redis.restore(key, 0, dump or b"", replace=True)
        await redis.zadd(LEASES, {id: due or 0})


async def test_each_of_two_attempts_of_one_number_has_its_own_files(bench: Bench, other: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [HELD], [call("write_file", path="second.txt", content="x")], [say("done")])
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    folder = bench.settings.workspaces / id
    async with claim_lost(bench, id):
        first = asyncio.create_task(carry_out(bench.services, id))
        await until((folder / "files/log").exists)
    await asyncio.wait_for(carry_out(other.services, id), 30)
    (folder / "files/go").touch()
    assert await asyncio.wait_for(first, 30) is None
    result = await bench.result(id)
    assert (result.termination_reason, result.attempts) == ("completed", 1)
    assert "outcome unknown: this call had begun before Redis lost its records" in result.details
    assert ((folder / "files.2/log").read_text(), (folder / "files.2/second.txt").exists()) == ("1\n", True)
    assert not (folder / "files/second.txt").exists()


async def test_the_attempt_whose_claim_is_lost_gets_no_later_files(bench: Bench, other: Bench, tmp_path: Path) -> None:
    """Its files would be the latest, and the next attempt would go on with them."""
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, [HELD], [say("done")])))
    async with claim_lost(bench, id):
        late = await bench.services.claim(id)
        assert late
    running = asyncio.create_task(carry_out(other.services, id))
    folder = bench.settings.workspaces / id
    await until((folder / "files/log").exists)
    assert await run_of(late, bench.services, StopSignal()).execute() is None
    assert [path.name for path in folder.glob("files*")] == ["files"]
    (folder / "files/go").touch()
    await running


async def test_an_attempt_that_ends_leaves_the_grounds_of_the_other_alone(
    bench: Bench, other: Bench, tmp_path: Path
) -> None:
    root = bench.settings.workspaces
    id = await bench.accept(asking(script(tmp_path, [GOOD], [say("done")])))
    async with claim_lost(bench, id):
        first = asyncio.create_task(carry_out(bench.services, id))
        (own,) = await until(lambda: grounds_in(root, id, "base"))
        await until(partial(waits_for_base, bench, id))  # and writes nothing until then
    second = asyncio.create_task(carry_out(other.services, id))
    await until(lambda: [each for each in grounds_in(root, id, "base") if each.parent != own.parent])
    first.cancel()
    await asyncio.wait({first})
    assert grounds_in(root, id, "base")

    def let_go() -> bool:
        for each in grounds_in(root, id):
            with suppress(FileNotFoundError):  # it is removed meanwhile
                (each / "go").touch()
        return second.done()

    await until(let_go)
    assert (await bench.result(id)).verification.verdict == "verified"


async def test_files_that_another_attempt_has_discarded_are_no_error(bench: Bench, tmp_path: Path) -> None:
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, [say("done")])))
    claim = await bench.services.claim(id)
    assert claim
    folder = bench.settings.workspaces / id
    folder.mkdir(parents=True)

    async def discarded_meanwhile() -> None:
        folder.rmdir()

    await discard_files(bench.services, replace(claim, past=Past(retries=1)), discarded_meanwhile)
    await bench.services.release(claim)
