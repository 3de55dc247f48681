"""The queue: what a ticket carries, in which order tickets are served, and what happens when Redis is away."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Iterator
from functools import partial
from itertools import takewhile
from typing import Any

import pytest
import redis
from celery import Celery, signals
from redis.client import PubSub
from redis.exceptions import NoPermissionError

import deputize.shared.queue
from deputize.shared.errors import Misconfigured, Unavailable
from deputize.shared.libc import LIBC
from deputize.shared.queue import (
    EXIT_MISCONFIGURED,
    QUEUE,
    TASK,
    Ticket,
    broker_priority,
    broker_url,
    create_app,
    send_tickets,
)
from deputize.shared.settings import Settings
from deputize.worker.celery_pool.process import ProgressEvents
from tests.processes.redis_server import RedisProcess
from tests.runs.tickets import queue_keys
from tests.waiting import until_sync


def app_for(url: str) -> Celery:
    return create_app(Settings.load(environ={}), url)


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    app = app_for(redis_url)
    yield app
    app.close()


def served(app: Celery) -> list[str]:
    """The ids of waiting tickets in the order in which workers get them."""
    with app.connection_for_read() as connection:
        queue = app.amqp.queues[QUEUE](connection.default_channel)
        return [message.payload[0][0] for message in iter(lambda: queue.get(no_ack=True), None)]


def test_a_credential_in_a_title_is_not_in_the_message(app: Celery, redis_url: str) -> None:
    send_tickets(app, [Ticket("dlg_1", title="Try ghp_Zk9hWq2LpXv7RtY4uMbN8cDsEfGhJkLmNpQr")])
    with redis.Redis.from_url(redis_url) as client:
        message: dict[str, Any] = json.loads(client.lindex(queue_keys()[4], 0) or "")
    assert message["headers"]["argsrepr"] == "'Try ***'"


def test_a_ticket_carries_the_id_and_nothing_of_the_work(app: Celery, redis_url: str) -> None:
    send_tickets(app, [Ticket("dlg_1", title="Say hello")])
    with redis.Redis.from_url(redis_url) as client:
        message: dict[str, Any] = json.loads(client.lindex(queue_keys()[4], 0) or "")
    headers = message["headers"]
    assert (headers["id"], headers["task"]) == ("dlg_1", TASK)
    assert (headers["argsrepr"], headers["kwargsrepr"]) == ("'Say hello'", "{}")
    with app.connection_for_read() as connection:
        payload = connection.SimpleQueue(app.amqp.queues[QUEUE]).get(block=False).payload
    assert payload[:2] == [["dlg_1"], {}]


def test_higher_priority_is_served_first_and_equal_ones_in_order(app: Celery) -> None:
    send_tickets(app, [Ticket(f"p{priority}", priority=priority) for priority in (5, 0, 9, 4, 6, 1, 8, 3, 7, 2)])
    send_tickets(app, [Ticket("p6 later", priority=6), Ticket("default later")])
    expected = ["p9", "p8", "p7", "p6", "p6 later", "p5", "default later", "p4", "p3", "p2", "p1", "p0"]
    assert served(app) == expected


def test_the_waiting_tickets_can_be_counted(app: Celery, redis_url: str) -> None:
    send_tickets(app, [Ticket(str(number), priority=number) for number in range(10)])
    with redis.Redis.from_url(redis_url) as client:
        assert [client.llen(key) for key in queue_keys()] == [1] * 10


def test_a_ticket_is_taken_and_acknowledged_in_one_round_trip(app: Celery, redis_url: str) -> None:
    send_tickets(app, [Ticket("dlg_1")])
    taken: list[Any] = []
    with (
        redis.Redis.from_url(redis_url) as client,
        app.connection_for_read() as connection,
        app.amqp.TaskConsumer(connection, on_message=taken.append),
    ):
        client.config_resetstat()
        connection.drain_events(timeout=10)
        taken[0].ack()
        assert taken[0].payload[0] == ["dlg_1"]
        counted = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    assert "brpop" in counted
    assert counted.isdisjoint({"multi", "hset", "hdel", "zadd", "zrem"})


def test_a_ticket_that_arrives_when_none_is_taken_any_more_is_put_back(app: Celery, redis_url: str) -> None:
    with app.connection_for_read() as connection, redis.Redis.from_url(redis_url) as client:
        consumer = app.amqp.TaskConsumer(connection, on_message=lambda message: pytest.fail("it was taken"))
        consumer.consume()
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.01)  # asks Redis for the next one
        consumer.cancel()
        send_tickets(app, [Ticket("dlg_1")])
        until_sync(lambda: not any(map(client.exists, queue_keys())))
        connection.transport.cycle.on_readable(connection.default_channel.client.connection._sock.fileno())
        assert served(app) == ["dlg_1"]


def test_a_priority_outside_of_0_to_9_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="10"):
        broker_priority(10)


def test_no_tickets_are_no_work(app: Celery, redis_url: str) -> None:
    send_tickets(app, [])
    with redis.Redis.from_url(redis_url) as client:
        assert client.keys() == []


def test_every_key_of_the_queue_is_ours(app: Celery, redis_url: str) -> None:
    send_tickets(app, [Ticket("dlg_1")])
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        assert [key for key in client.scan_iter() if not key.startswith("deputize:")] == []


def test_without_redis_sending_fails_soon_with_the_reason(redis_process: RedisProcess) -> None:
    app = app_for(redis_process.url)
    redis_process.kill()
    started = time.monotonic()
    with pytest.raises(Unavailable, match="try again"):
        send_tickets(app, [Ticket("dlg_1")])
    assert time.monotonic() - started < 5  # the caller waits; Celery's own default is 20 s
    app.close()


def test_the_first_send_after_a_restart_of_redis_succeeds(redis_process: RedisProcess) -> None:
    app = app_for(redis_process.url)
    send_tickets(app, [Ticket("before")])
    redis_process.kill()
    redis_process.start()
    send_tickets(app, [Ticket("after")])
    assert served(app)[-1] == "after"
    app.close()


@pytest.mark.parametrize("setting", ["maxmemory", "min-replicas-to-write"])
def test_a_queue_is_bound_when_redis_takes_writes_again(redis_process: RedisProcess, setting: str) -> None:
    """Celery's worker connects again after a lost connection, and ends after any other error."""
    app = app_for(redis_process.url)
    with app.connection_for_read() as connection:
        queue, channel = app.amqp.queues[QUEUE], connection.default_channel
        redis_process.client.config_set(setting, 1)
        with pytest.raises(redis.ConnectionError, match="takes no writes"):
            queue(channel).declare()
        channel.qos.restore_visible()
        redis_process.client.config_set(setting, 0)
        queue(channel).declare()
    app.close()


def test_a_wait_for_tickets_that_redis_refuses_is_a_broken_connection(redis_process: RedisProcess) -> None:
    app = app_for(redis_process.url)
    with app.connection_for_read() as connection, app.amqp.TaskConsumer(connection):
        redis_process.client.config_set("min-replicas-to-write", 1)
        with pytest.raises(redis.ConnectionError, match="takes no writes"):
            connection.drain_events(timeout=5)
    app.close()


def test_a_queue_that_may_not_be_bound_is_a_mistake(redis_process: RedisProcess) -> None:
    app = app_for(redis_process.url)
    with app.connection_for_read() as connection:
        redis_process.client.execute_command("ACL", "SETUSER", "default", "-sadd")
        with pytest.raises(NoPermissionError):
            app.amqp.queues[QUEUE](connection.default_channel).declare()
    app.close()


def test_events_of_tasks_are_sent_only_while_the_last_heartbeat_was_received(app: Celery, redis_url: str) -> None:
    with (
        redis.Redis.from_url(redis_url) as client,
        client.pubsub() as listener,
        app.connection_for_write() as connection,
    ):
        worker: Any = app.events.Dispatcher(connection, "worker-1")
        worker.send("worker-heartbeat")
        listener.subscribe("another channel")
        listener.psubscribe("*/0.celeryev/*")
        assert received(listener) == []
        worker.send("task-received")  # no heartbeat since it listens
        worker.send("worker-heartbeat")
        worker.send("task-succeeded")
        assert received(listener) == [b"worker.heartbeat", b"task.succeeded"]
        listener.punsubscribe()
        assert received(listener) == []
        worker.send("worker-heartbeat")
        listener.psubscribe("*/0.celeryev/*")
        assert received(listener) == []
        worker.send("task-failed")
        worker.close()
        worker.send("worker-offline")
        assert received(listener) == []


def test_the_end_of_a_task_is_that_of_the_delegation_that_it_carried_out(app: Celery, redis_url: str) -> None:
    with (
        redis.Redis.from_url(redis_url) as client,
        client.pubsub() as listener,
        app.connection_for_write() as connection,
    ):
        worker, progress = app.events.Dispatcher(connection, "worker-1"), ProgressEvents(app, "worker-1")
        progress.ended("unheard", "another")
        listener.psubscribe("*/0.celeryev/*")
        worker.send("worker-heartbeat")
        for ticket, id in {"own": "own", "named": "another", "late": "", "unheard": "unheard"}.items():
            progress.ended(ticket, id)
            worker.send("task-started", uuid=ticket)
            worker.send("task-succeeded", uuid=ticket)
        worker.send("task-failed", uuid="named")
        messages: Iterator[Any] = iter(partial(listener.get_message, timeout=1), None)
        events = [json.loads(each["data"]) for each in messages if each["type"] == "pmessage"]
        bodies = [json.loads(b64decode(each["body"])) for each in events]
        ends = [body["uuid"] for body in bodies if body["type"] in ("task-succeeded", "task-failed")]
        assert ends == ["own", "another", "unheard", "named"]
        worker.close()


def received(listener: PubSub) -> list[bytes]:
    """The kinds of the events that it has received, once all of its commands have replies."""
    listener.ping()
    messages: Iterator[Any] = iter(partial(listener.get_message, timeout=60), None)
    until_reply = list(takewhile(lambda message: message["type"] != "pong", messages))
    return [each["channel"].rpartition(b"/")[2] for each in until_reply if each["type"] == "pmessage"]


@pytest.mark.parametrize(
    ("ours", "celerys"),
    [
        ("redis://:secret@host:6379/2", "redis://:secret@host:6379/2"),
        ("rediss://host/0", "rediss://host/0"),
        ("unix:///run/r.sock", "redis+socket:///run/r.sock"),
        ("unix:///run/r%20s.sock?db=3", "redis+socket:///run/r%20s.sock?virtual_host=3"),
    ],
)
def test_celery_gets_the_address_as_it_writes_it(ours: str, celerys: str) -> None:
    assert broker_url(ours) == celerys


def test_an_address_of_something_else_is_refused() -> None:
    with pytest.raises(Misconfigured, match="amqp://"):
        broker_url("amqp://host")


GET_DUMPABLE, SET_DUMPABLE = 3, 4


@pytest.fixture
def process_of_celery() -> Iterator[None]:
    """What `celery -A deputize.shared.queue:app` changes in its own process is as before afterwards."""
    before = LIBC.prctl(GET_DUMPABLE, 0, 0, 0, 0)
    deputize.shared.queue._app_of_this_process.cache_clear()
    yield
    deputize.shared.queue._app_of_this_process.cache_clear()
    signals.celeryd_init.disconnect(deputize.shared.queue._refuse_worker)
    LIBC.prctl(SET_DUMPABLE, before, 0, 0, 0)


@pytest.mark.usefixtures("process_of_celery")
def test_celery_finds_its_app_and_starts_no_worker_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DEPUTIZE_REDIS_URL", "redis://host:6379/2")
    app = deputize.shared.queue.app
    assert app.conf.broker_url == "redis://host:6379/2"
    assert deputize.shared.queue.app is app
    with pytest.raises(SystemExit) as ended:
        signals.celeryd_init.send(sender="worker")
    assert ended.value.code == EXIT_MISCONFIGURED
    assert "`deputize worker`" in capsys.readouterr().err


@pytest.mark.usefixtures("process_of_celery")
def test_celery_without_a_redis_names_the_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DEPUTIZE_REDIS_URL", raising=False)
    with pytest.raises(SystemExit) as ended:
        _ = deputize.shared.queue.app
    assert ended.value.code == EXIT_MISCONFIGURED
    assert capsys.readouterr().err.startswith("celery: DEPUTIZE_REDIS_URL is not set")


def test_the_module_has_no_attribute_but_the_app() -> None:
    assert not hasattr(deputize.shared.queue, "application")
