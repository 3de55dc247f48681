"""How many runs a worker's open files carry, and the wait for them."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import Status
from deputize.shared.errors import Misconfigured
from deputize.shared.request import DelegationRequest
from deputize.worker.linux.open_files import FILES_PER_RUN, MOST_FILES_PER_RUN, SPARE, OpenFiles, now_open
from deputize.worker.promises.__main__ import open_files_row
from deputize.worker.task import carry_out
from tests.runs.bench import Bench, say, script
from tests.waiting import until
from tests.worker.forked import in_child


def with_limit(most: int, work: Any) -> Any:
    """What ``work`` returns in a process that may have so many open files."""

    def limited() -> Any:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        return work()

    return in_child(limited)


@pytest.mark.parametrize(
    ("most", "runs"), [(SPARE + FILES_PER_RUN, 1), (SPARE + 3 * FILES_PER_RUN - 1, 2), (19_000, 50)]
)
def test_a_worker_takes_as_many_runs_as_its_open_files_carry(most: int, runs: int) -> None:
    assert with_limit(most, lambda: OpenFiles.for_runs(50).concurrency) == runs


def test_a_worker_whose_open_files_carry_no_run_names_the_limit_and_how_it_is_raised() -> None:
    def refused() -> str:
        with pytest.raises(Misconfigured) as error:
            OpenFiles.for_runs(1)
        return str(error.value)

    why = with_limit(SPARE, refused)
    assert f"may have {SPARE} open files, and a worker needs {SPARE + FILES_PER_RUN}: raise its limit (ulimit -n" in why


@pytest.mark.parametrize(
    ("most", "state", "detail"),
    [
        (19_000, "✓", "a process may have 19,000, with which a worker takes 50 delegations at the same time"),
        (
            SPARE + 2 * FILES_PER_RUN,
            "!",
            "a worker takes 2 delegations at the same time and not 50 (DEPUTIZE_CONCURRENCY)",
        ),
        (SPARE, "✗", f"no worker starts here: this process may have {SPARE} open files"),
    ],
)
def test_doctor_names_how_many_runs_the_limit_carries(most: int, state: str, detail: str) -> None:
    row = with_limit(most, lambda: [(found := open_files_row(50)).state, found.detail, found.remedy])
    assert row[0] == state
    assert detail in row[1]
    assert ("ulimit -n" in row[2]) == (state != "✓")


def test_open_files_are_counted_only_where_runs_can_use_all_of_them_up() -> None:
    enough = SPARE + 50 * MOST_FILES_PER_RUN
    assert [OpenFiles(most, 50).are_scarce for most in (enough - 1, enough)] == [True, False]


async def test_a_run_is_claimed_only_when_there_are_open_files_for_it(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(2 * FILES_PER_RUN)]
    bench.services.open_files = files = OpenFiles(now_open(), 10)
    id = await bench.accept(DelegationRequest(task="t", model=script(tmp_path, [say("done")])))
    async with files.admitted("another run"):
        running = asyncio.create_task(carry_out(bench.services, id))
        await until(lambda: f"{id} waits until runs end" in caplog.text)
        assert (await bench.store.get(id)).status is Status.QUEUED
        for each in held:
            os.close(each)
        await asyncio.wait_for(running, 30)
    assert (await bench.result(id)).attempts == 1


async def test_where_all_runs_wait_another_one_begins_whatever_is_open_and_no_second_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files, begun = OpenFiles(now_open(), 10), list[str]()

    async def run(id: str) -> None:
        async with files.admitted(id):
            begun.append(id)
            await asyncio.Event().wait()

    async with files.admitted("parent"):
        with files.waiting():
            children = [asyncio.create_task(run(id)) for id in ("first", "second")]
            await until(lambda: "second waits until runs end" in caplog.text)
            assert begun == ["first"]
            children[0].cancel()
            await until(lambda: begun == ["first", "second"])
            children[1].cancel()
            await asyncio.wait(children)
