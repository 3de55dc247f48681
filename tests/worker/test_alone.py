"""The messages of a process that carries out one run, and its end where it stops at any point."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import signal
import struct
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest

from deputize.worker.celery_pool.one_run import received, takes_writes
from deputize.worker.task import WorkerStart, start_alone
from tests.orchestrator.serving import settings
from tests.processes.redis_server import RedisProcess

GIVEN = b"what it needs" * 100_000
"""More than a socket takes at once."""


def _answer(its: Connection, size: int) -> None:
    assert its.recv_bytes() == GIVEN
    its.send(True)
    its.send("x" * size)


@pytest.mark.parametrize("size", [1, 2_000_000])
async def test_an_answer_is_received_though_a_socket_does_not_hold_it(size: int) -> None:
    assert await _received(_answer, size) == ("x" * size, 0)


def _die(its: Connection, when: str) -> None:
    if when == "after its claim":
        its.recv_bytes()
        its.send(True)
    os._exit(1)


@pytest.mark.parametrize(("when", "has_hint"), [("before its claim", True), ("after its claim", False)])
async def test_a_process_that_died_has_no_answer(when: str, has_hint: bool, caplog: pytest.LogCaptureFixture) -> None:
    assert await _received(_die, when) == (None, 1)
    assert "ended without an answer, with exit code 1" in caplog.text
    assert ("it needs `if __name__" in caplog.text) == has_hint


def _garble(its: Connection, when: str) -> None:
    its.recv_bytes()
    if when == "its answer":
        its.send(True)
    its.send_bytes(b"cno_such_module\nname\n.")


@pytest.mark.parametrize("when", ["its claim", "its answer"])
async def test_a_message_that_cannot_be_unpickled_is_reported(when: str, caplog: pytest.LogCaptureFixture) -> None:
    assert await _received(_garble, when) == (None, 0)
    assert "cannot be read: ModuleNotFoundError" in caplog.text


async def test_a_process_that_cannot_be_started_leaves_nothing_open() -> None:
    start = WorkerStart(settings(), "", "x", None, None, (), {})
    free, limits = _free(3), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[2], limits[1]))  # room for the pipe alone
    try:
        with pytest.raises(OSError, match="Too many open files") as caught:
            await start_alone(start, "dlg_x")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert _free(3) == free
    del caught  # until here its frames keep what they have open


def _free(number: int) -> list[int]:
    """The next descriptors that are free."""
    free = [os.dup(0) for _ in range(number)]
    for each in free:
        os.close(each)
    return free


def _stop(its: Connection, point: str) -> None:
    """Stops for good at that point."""
    faulthandler.disable()  # it is the one of pytest
    if point == "it reads nothing":
        signal.pause()
    its.recv_bytes()
    if point == "it is stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if point == "it ignores its end":
        signal.signal(signal.SIGABRT, signal.SIG_IGN)
        signal.pause()
    if point == "half of its claim":
        os.write(its.fileno(), b"\0")
        signal.pause()
    its.send(True)
    if point == "half of its answer":
        os.write(its.fileno(), struct.pack("!i", 1000) + b"half")
        signal.pause()
    its.send("answer")
    if point == "it closes what it answers by":
        its.close()
    signal.pause()


@pytest.mark.parametrize(
    ("point", "missing"),
    [
        ("it reads nothing", "claim its run"),
        ("it is stopped", "claim its run"),
        ("it ignores its end", "claim its run"),
        ("half of its claim", "claim its run"),
        ("half of its answer", "write its answer"),
        ("it closes what it answers by", "end after its run"),
        ("it stays", "end after its run"),
    ],
)
async def test_a_process_that_stops_at_any_point_is_ended_and_reported(
    point: str, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    found, code = await _received(_stop, point)
    assert found == ("answer" if missing == "end after its run" else None)
    assert code in (-signal.SIGABRT, -signal.SIGKILL)
    assert f"did not {missing} within 0 s: it is ended" in caplog.text


async def test_the_time_for_a_claim_does_not_count_while_redis_takes_no_writes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looks = list[bool]()

    async def counts() -> bool:
        looks.append(len(looks) >= 25)  # longer than the time that it has
        return looks[-1]

    assert await _received(_stop, "it reads nothing", counts) == (None, -signal.SIGABRT)
    assert (len(looks), looks.count(True)) == (35, 10)
    assert "did not claim its run" in caplog.text


@pytest.mark.parametrize("state", ["as usual", "read-only", "stopped", "away"])
async def test_whether_redis_takes_writes_is_known(redis_process: RedisProcess, state: str) -> None:
    if state == "read-only":
        redis_process.client.replicaof("127.0.0.1", 1)
    if state == "stopped":
        redis_process.process.send_signal(signal.SIGSTOP)
    if state == "away":
        redis_process.kill()
    assert await takes_writes(redis_process.url, 0.2) == (state == "as usual")
    assert state != "as usual" or redis_process.client.dbsize() == 0
    redis_process.process.send_signal(signal.SIGCONT)


async def test_a_run_may_take_longer_than_its_claim() -> None:
    assert await _received(_work, 1.0) == ("done", 0)


def _work(its: Connection, seconds: float) -> None:
    its.recv_bytes()
    its.send(True)
    threading.Event().wait(seconds)
    its.send("done")


async def _received(work: Callable[[Connection, Any], None], given: object, *counts: Any) -> tuple[Any, int | None]:
    """The answer and the exit code of a process that does that work."""
    context = multiprocessing.get_context("fork")
    connection, its = context.Pipe()
    process = context.Process(target=work, args=(its, given))
    process.start()
    its.close()
    found: Any = await received(process, connection, GIVEN, 0.4, 0.4, *counts)
    code = process.exitcode
    process.close()
    return found, code
