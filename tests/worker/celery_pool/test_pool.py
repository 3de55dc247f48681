"""The asyncio pool, in a real worker process on a real Redis."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from deputize.shared.queue import create_app
from deputize.shared.settings import Settings
from deputize.worker.celery_pool.pool import DRAIN_SIGNAL
from tests.processes.leaks import kept
from tests.processes.preloaded import POOL_WORKER, Forked
from tests.processes.redis_server import RedisProcess
from tests.runs.celery_events import Events
from tests.runs.tickets import queue_keys
from tests.waiting import until_sync
from tests.worker.celery_pool.pool_worker import SEEN

pytestmark = pytest.mark.system
_numbers = itertools.count(1)


class Worker:
    """A worker process, the queue before it, and what its tasks say that they have seen."""

    def __init__(self, url: str, folder: Path, *options: str) -> None:
        self.app: Celery = create_app(Settings.load(environ={}), url)
        self.log = folder / f"worker-{next(_numbers)}.log"
        self.redis = redis.Redis.from_url(url, decode_responses=True)
        with self.log.open("ab") as output:
            descriptor = output.fileno()
            self.process = Forked(POOL_WORKER, [url, *options], os.environ, stdout=descriptor, stderr=descriptor)

    def send(self, name: str, *args: Any, id: str | None = None, **options: Any) -> None:
        self.app.send_task(name, args=args, task_id=id or name, **options)

    def sees(self, *lines: str, timeout: float = 60) -> None:
        """Waits for these lines, in any order."""
        try:
            until_sync(lambda: set(lines) <= set(self.seen), timeout)
        except AssertionError as late:
            late.add_note(f"seen: {self.seen}\nthe worker's log:\n{self.log.read_text()}")
            raise

    @property
    def seen(self) -> list[str]:
        return [str(line) for line in self.redis.lrange(SEEN, 0, -1)]

    @property
    def stats(self) -> dict[str, Any]:
        answers = until_sync(lambda: self.app.control.inspect(timeout=2).stats())
        return next(iter(answers.values()))["pool"]

    def ends(self, timeout: float = 60) -> int:
        return self.process.wait(timeout)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(10)
        self.redis.close()
        self.app.close()


@pytest.fixture
def start(redis_url: str, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def started(*options: str) -> Worker:
        workers.append(Worker(redis_url, tmp_path, *options))
        return workers[-1]

    yield started
    for worker in workers:
        worker.close()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """One for all tests that leave it alive; each uses ids of its own."""
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        server = RedisProcess(Path(folder))
        shared = Worker(server.url, tmp_path_factory.mktemp("worker"))
        kept.update({server.process.pid, shared.process.pid, folder})
        yield shared
        shared.close()
        server.kill()


def test_a_coroutine_runs_as_a_celery_task_and_its_result_is_announced(worker: Worker) -> None:
    with Events(worker.app) as events:
        worker.send("answer", "abc", id="one")
        succeeded = events.wait_for("task-succeeded", "one")
    worker.sees("answer abc for one")
    assert succeeded["result"] == "'cba'"


def test_fifty_jobs_take_as_long_as_one(worker: Worker) -> None:
    for number in range(50):
        worker.send("stay", 4, id=f"f{number}")
    worker.sees(*(f"end f{number}" for number in range(50)))
    lines = [line for line in worker.seen if line.startswith(("start f", "end f"))]
    assert all(line.startswith("start") for line in lines[:50])  # all had started before the first one ended


def test_no_more_jobs_run_than_there_are_places(start: Callable[..., Worker]) -> None:
    worker = start("--concurrency", "3")
    for number in range(5):
        worker.send("stay", 0.3, id=f"s{number}")
    worker.sees(*(f"end s{number}" for number in range(5)))
    assert worker.stats["peak"] == 3


def test_a_job_that_waits_frees_its_slot_for_another(start: Callable[..., Worker]) -> None:
    worker = start("--concurrency", "1")
    worker.send("wait", 60, id="waiting")
    worker.sees("start waiting")
    worker.send("answer", "abc", id="other")
    worker.sees("answer abc for other")
    assert worker.stats["waiting"] == 1


def test_a_task_knows_its_request_and_can_retry(worker: Worker) -> None:
    worker.send("retry", id="again")
    worker.sees("try 0 of again", "try 1 of again", "try 2 of again")


def test_a_child_task_of_a_job_knows_the_jobs_request(worker: Worker) -> None:
    worker.send("child", id="parent")
    worker.sees("child of parent")


def test_programs_can_be_run_on_the_pools_loop(worker: Worker) -> None:
    worker.send("program")
    worker.sees("hello 0")


@pytest.mark.parametrize("how", ["error", "exit", "cancel"])
def test_a_failing_job_is_announced_and_harms_no_other(worker: Worker, how: str) -> None:
    worker.send("stay", 1, id=f"beside {how}")
    worker.sees(f"start beside {how}")
    with Events(worker.app) as events:
        worker.send("fail", how, id=how)
        events.wait_for("task-failed", how)
    worker.send("answer", "abc", id=f"after {how}")
    worker.sees(f"answer abc for after {how}", f"end beside {how}")


def test_a_traceback_names_the_line_of_the_task(worker: Worker) -> None:
    with Events(worker.app) as events:
        worker.send("fail", "error", id="traced")
        failed = events.wait_for("task-failed", "traced")
    assert "in fail" in failed["traceback"]


def test_a_revoked_job_is_cancelled_and_can_clean_up(worker: Worker) -> None:
    worker.send("stay", 60, 0.1, id="revoked")
    worker.sees("start revoked")
    with Events(worker.app) as events:
        worker.app.control.revoke("revoked", terminate=True)
        worker.sees("cancelled revoked")
        events.wait_for("task-revoked", "revoked")


def test_a_job_that_ignores_its_cancellation_is_cancelled_again(worker: Worker) -> None:
    worker.send("stubborn", id="stub")
    worker.sees("start stub")
    worker.app.control.revoke("stub", terminate=True)
    until_sync(lambda: worker.seen.count("ignored stub") == 2, timeout=45)


def test_shutdown_leaves_jobs_their_time_then_cancels_and_awaits_the_rest(start: Callable[..., Worker]) -> None:
    worker = start()
    worker.send("stay", 0.5, id="short")
    worker.send("stay", 60, 0.3, id="long")
    worker.sees("start short", "start long")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ends() == 0
    assert worker.seen[-3:] == ["end short", "cancelled long", "closed"]


def test_shutdown_takes_no_longer_than_the_jobs(start: Callable[..., Worker]) -> None:
    worker = start("--soft-seconds", "60")
    worker.send("stay", 0.3, id="short")
    worker.sees("start short")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ends() == 0
    assert worker.seen[-2:] == ["end short", "closed"]


def test_a_second_signal_cuts_the_jobs_time_short(start: Callable[..., Worker]) -> None:
    worker = start("--soft-seconds", "60")
    worker.send("stay", 60, id="long")
    worker.sees("start long")
    worker.process.send_signal(signal.SIGTERM)
    until_sync(lambda: "asked to stop" in worker.log.read_text())
    worker.process.send_signal(signal.SIGINT)
    assert worker.ends() == 0
    assert worker.seen[-2:] == ["cancelled long", "closed"]


def waits_for_tickets(redis_url: str) -> bool:
    """Whether a worker waits at the queue: what it was sent by then it takes, also where it was asked to stop."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        return any(each["cmd"] == "brpop" and "b" in each["flags"] for each in client.client_list())


def test_a_worker_that_stops_leaves_new_work_to_others(start: Callable[..., Worker], redis_url: str) -> None:
    stopping = start("--soft-seconds", "60")
    stopping.send("stay", 60, id="long")
    stopping.sees("start long")
    stopping.process.send_signal(signal.SIGTERM)
    until_sync(lambda: "asked to stop" in stopping.log.read_text())
    until_sync(lambda: not waits_for_tickets(redis_url))
    stopping.send("answer", "abc", id="new")
    other = start()
    other.sees("answer abc for new")
    assert "answer[new]" not in stopping.log.read_text()
    assert "answer[new]" in other.log.read_text()


@pytest.mark.long
def test_a_worker_that_drains_hands_over_and_takes_nothing_more_until_it_is_stopped(
    redis_process: RedisProcess, tmp_path: Path
) -> None:
    worker = Worker(redis_process.url, tmp_path, "--soft-seconds", "0")
    try:
        worker.send("stay", 60, id="long")
        worker.sees("start long")
        worker.process.send_signal(DRAIN_SIGNAL)
        worker.sees("cancelled long")
        until_sync(lambda: "drained; the worker stays" in worker.log.read_text())
        until_sync(lambda: not waits_for_tickets(redis_process.url))
        redis_process.kill()
        redis_process.start()
        assert worker.stats["running"] == 0  # it is connected again
        worker.send("answer", "abc", id="new")
        assert worker.stats["running"] == 0
        assert sum(int(worker.redis.llen(key)) for key in queue_keys()) == 1
        worker.process.send_signal(signal.SIGTERM)
        assert worker.ends() == 0
        assert worker.seen[1:] == ["start long", "cancelled long", "closed"]
    finally:
        worker.close()


def test_a_worker_that_drains_can_be_stopped_meanwhile(start: Callable[..., Worker]) -> None:
    worker = start("--soft-seconds", "60")
    worker.send("stay", 60, id="long")
    worker.sees("start long")
    worker.process.send_signal(DRAIN_SIGNAL)
    until_sync(lambda: "asked to drain" in worker.log.read_text())
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ends() == 0
    assert worker.seen[-2:] == ["cancelled long", "closed"]


def test_services_open_before_the_first_job_and_close_after_the_last(start: Callable[..., Worker]) -> None:
    worker = start()
    worker.send("answer", "abc", id="one")
    worker.sees("answer abc for one")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ends() == 0
    assert worker.seen == [f"opened in {worker.process.pid}", "answer abc for one", "closed"]


def test_a_worker_whose_service_breaks_hands_over_and_stops(start: Callable[..., Worker]) -> None:
    worker = start()
    worker.send("stay", 60, id="long")
    worker.sees("start long")
    worker.send("break_service")
    assert worker.ends() == 1
    assert "cancelled long" in worker.seen


def test_a_service_that_cannot_open_is_a_clear_message_and_exit_code_3(start: Callable[..., Worker]) -> None:
    worker = start("--broken")
    assert worker.ends() == 3
    log = worker.log.read_text()
    assert "this service cannot be opened" in log
    assert "Traceback" not in log


def test_a_worker_that_is_still_opening_its_services_can_be_stopped(start: Callable[..., Worker]) -> None:
    worker = start("--stuck")
    until_sync(lambda: "opening for ever" in worker.log.read_text())
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ends() == 0


def test_what_blocks_the_loop_is_reported_with_its_place(worker: Worker) -> None:
    worker.send("block", 0.5)
    worker.sees("blocked")
    until_sync(lambda: "the event loop was blocked" in worker.log.read_text())
    assert "in block" in worker.log.read_text()


@pytest.mark.long
def test_the_pool_grows_and_shrinks_on_command(start: Callable[..., Worker]) -> None:
    worker = start("--concurrency", "2")
    until_sync(lambda: worker.app.control.pool_grow(3, reply=True))
    assert worker.stats["max-concurrency"] == 5
    worker.app.control.pool_shrink(4, reply=True)
    assert worker.stats["max-concurrency"] == 1


@pytest.mark.requirement("P-14")
def test_a_worker_and_its_jobs_outlive_a_restart_of_redis(redis_process: RedisProcess, tmp_path: Path) -> None:
    worker = Worker(redis_process.url, tmp_path)
    try:
        worker.send("hold", id="long")
        worker.sees("start long")
        redis_process.kill()
        redis_process.start()
        worker.send("release")
        worker.sees("end long")
    finally:
        worker.close()
