"""Flower beside a real worker: what an operator sees of a running delegation."""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
import redis
from celery import Celery
from redis.client import Monitor

from deputize.shared.queue import TASK, Ticket, create_app, send_tickets
from deputize.shared.settings import Settings
from tests.processes.preloaded import POOL_WORKER, Forked
from tests.processes.redis_server import RedisProcess
from tests.system.flower_page import Page, flower_page
from tests.waiting import until_sync
from tests.worker.celery_pool.pool_worker import SEEN

pytestmark = pytest.mark.system


@pytest.fixture
def worker(redis_process: RedisProcess, tmp_path: Path) -> Iterator[None]:
    with (tmp_path / "worker.log").open("wb") as log:
        worker = Forked(POOL_WORKER, [redis_process.url], os.environ, stdout=log.fileno(), stderr=log.fileno())
    yield
    worker.send_signal(signal.SIGTERM)
    worker.wait(20)


@pytest.fixture
def page(redis_process: RedisProcess, worker: None, tmp_path: Path) -> Iterator[Page]:
    with flower_page(redis_process.url, tmp_path) as page:
        yield page


@pytest.fixture
def app(redis_process: RedisProcess) -> Iterator[Celery]:
    app = create_app(Settings.load(environ={}), redis_process.url)
    yield app
    app.close()


def test_flower_shows_a_delegations_title_id_worker_and_present_step(page: Page, app: Celery) -> None:
    send_tickets(app, [Ticket("dlg_1", title="Summarise the README")])
    task = until_sync(lambda: (found := page.task("dlg_1")).get("state") == "PROGRESS" and found, timeout=45)
    shown = {key: task[key] for key in ("name", "uuid", "args", "kwargs", "result")}
    assert shown == {
        "name": TASK,
        "uuid": "dlg_1",
        "args": "'Summarise the README'",
        "kwargs": "{}",
        "result": "step 3 of 6: read a.py",
    }
    assert task["worker"].startswith("worker-1@")


@pytest.mark.long
@pytest.mark.usefixtures("worker")
def test_flower_shows_runs_from_before_it_opened_and_no_event_is_sent_without_it(
    redis_process: RedisProcess, app: Celery, tmp_path: Path
) -> None:
    with redis.Redis.from_url(redis_process.url, decode_responses=True) as client:
        with client.monitor() as monitor:
            send_tickets(app, [Ticket("dlg_1", title="Begun before")])
            until_sync(lambda: "start dlg_1" in client.lrange(SEEN, 0, -1))
            assert task_events(monitor) == []
        with flower_page(redis_process.url, tmp_path) as page:
            app.send_task("advance", args=["dlg_1", "step 4 of 6: read b.py"])
            until_sync(lambda: page.task("dlg_1").get("result") == "step 4 of 6: read b.py", timeout=45)
            send_tickets(app, [Ticket("dlg_2", title="Begun later")])
            until_sync(lambda: page.task("dlg_2").get("args") == "'Begun later'", timeout=45)
        with client.monitor() as monitor:
            task_events(monitor)  # until the first heartbeat that Flower does not receive
            app.send_task("answer", args=["abc"], task_id="one")
            until_sync(lambda: "answer abc for one" in client.lrange(SEEN, 0, -1))
            assert task_events(monitor) == []


def task_events(monitor: Monitor) -> list[str]:
    """The commands that send events of tasks, until the worker's next heartbeat."""
    commands = (str(each) for each in monitor.listen())
    until_heartbeat = takewhile(lambda command: "celeryev/worker.heartbeat" not in command, commands)
    return [command for command in until_heartbeat if "celeryev/task." in command]


def test_flower_shows_nothing_without_its_password(page: Page) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        page.get("/api/tasks", password=False)
