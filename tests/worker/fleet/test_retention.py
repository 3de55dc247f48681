"""However a delegation ended, every key of it has an end."""

from __future__ import annotations

from pathlib import Path

from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import keys_of
from deputize.worker.task import carry_out
from tests.leaks import endless_keys
from tests.running import Bench, call, say, script

WRITE = call("write_file", path="a.txt", content="x")


async def check(bench: Bench, id: str, status: str, at_least: int) -> None:
    """It ended so, and each of its keys, at least so many, goes with the retention."""
    assert (await bench.store.get(id)).status == status
    lives = [await bench.store.redis.ttl(key) for key in keys_of(id)]
    there = [life for life in lives if life != -2]
    assert len(there) >= at_least
    assert all(0 < life <= bench.settings.retention_seconds for life in there)
    assert endless_keys(bench.settings.redis_url or "") == []


async def test_one_that_succeeded(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE], [say("done")]))
    await check(bench, result.delegation_id, "succeeded", 3)


async def test_one_that_failed(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE], [say("never")]), limits={"max_turns": 1})
    await check(bench, result.delegation_id, "failed", 3)


async def test_one_that_never_found_its_files(bench: Bench, tmp_path: Path) -> None:
    workspace = {"kind": "directory", "path": str(tmp_path / "gone")}
    request = DelegationRequest.model_validate({"task": "t", "workspace": workspace, "model": script(tmp_path)})
    id = await bench.accept(request)
    await carry_out(bench.services, id)
    await check(bench, id, "failed", 2)


async def test_one_that_was_cancelled_before_its_start(bench: Bench) -> None:
    id = await bench.accept(DelegationRequest(task="wait"))
    await bench.store.cancel(id)
    await check(bench, id, "cancelled", 2)


async def test_one_that_was_resumed_and_has_a_child(bench: Bench, tmp_path: Path) -> None:
    turns = [[WRITE], [call("bash", command="touch held; exec sleep 1000")], [say("done")]]
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, *turns)))
    child = await bench.accept(DelegationRequest(task="help", parent_id=id))
    await bench.interrupt(id, lambda: [*bench.settings.workspaces.rglob("held")])
    await carry_out(bench.services, id)
    assert (await bench.result(id)).attempts == 2
    await check(bench, id, "succeeded", 4)
    assert (await bench.store.get(child)).status == "queued"
