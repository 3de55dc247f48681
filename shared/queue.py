"""The Celery app: the queue of tickets, its options, its events, and fixes of its messaging library."""

from __future__ import annotations

import ssl
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import kombu.exceptions
import redis.exceptions
from celery import Celery, signals
from celery.events.dispatcher import EventDispatcher
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as kombu_redis
from kombu.utils.json import dumps

from .connection import refuses_for_now
from .errors import DeputizeError, Misconfigured, Unavailable
from .log import log, masked
from .own_process import keep_memory_private
from .runs.keys import KEY_PREFIX
from .sentinel import SentinelAddress, is_of_sentinel
from .settings import Settings

NO_WRITES_SECONDS = 0.5


class _NoNotes(kombu_redis.QoS):
    """Of a channel that keeps no notes of tickets."""

    def restore_visible(self, *_: Any, **__: Any) -> None:
        """Restores nothing. To look for notes takes a write, which ended a worker where Redis took none."""


class SafeChannel(kombu_redis.Channel):
    """Keeps a worker alive through Redis restarts and invalid queue entries, and reuses its client."""

    QoS = _NoNotes
    receivers = 0
    _client: Any = None

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        """Lets a worker reconnect after a restart of Redis.

        Its consumer closes a broken connection twice. The second time the channel has no connection any more and
        raises AttributeError, which ends the worker; a ConnectionError makes it reconnect.
        """
        if self.connection is None or self.connection.client is None:
            raise redis.exceptions.ConnectionError("the connection to Redis was closed")
        return super()._connparams(asynchronous)

    def _brpop_read(self, **options: Any) -> Any:
        """Drops an entry that is not a ticket: anyone with write access to the queue could end every worker."""
        try:
            return super()._brpop_read(**options)
        except redis.exceptions.ResponseError as error:
            raise _broken_for(error) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log.warning("an entry of the queue is not a ticket and is dropped", extra={"cause": repr(error)[:300]})
            return True

    def _queue_bind(self, *arguments: Any, **options: Any) -> None:
        """Lets a worker connect again where Redis takes no writes."""
        try:
            super()._queue_bind(*arguments, **options)
        except redis.exceptions.ResponseError as error:
            raise _broken_for(error) from error

    def _create_client(self, asynchronous: bool = False) -> Any:
        """Reuses the client: redis-py takes longer to create one than to use it, and the pool is shared anyway."""
        if asynchronous:
            return super()._create_client(asynchronous)
        if self._client is None or self._client.connection_pool is not self.pool:
            self._client = super()._create_client()
        return self._client

    def basic_consume(self, queue: str, no_ack: bool, *arguments: Any, **options: Any) -> None:
        """Keeps no note of a ticket until it is acknowledged: two more round trips, and Celery accepts it at once.

        A janitor replaces the ticket of a worker that is killed in between, long before kombu would look at the note.
        """
        super().basic_consume(queue, True, *arguments, **options)

    def basic_ack(self, *_: Any, **__: Any) -> None:
        """Deletes nothing: there is no note."""

    def _put_fanout(self, *arguments: Any, **_: Any) -> None:
        """Keeps how many received the message, which kombu discards; nothing else counts subscribers to a pattern."""
        name, message, key = arguments
        with self.conn_or_acquire() as client:
            self.receivers = client.publish(self._get_publish_topic(name, key), dumps(message))


def _broken_for(error: redis.exceptions.ResponseError) -> redis.exceptions.RedisError:
    """Returns a broken connection, after a pause, where Redis takes no writes; any other error ends the worker.

    To wait for a ticket is a write.
    """
    if not refuses_for_now(error) or isinstance(error, redis.exceptions.NoPermissionError):
        return error
    time.sleep(NO_WRITES_SECONDS)
    return redis.exceptions.ConnectionError(f"Redis takes no writes: {error}")


class SafeSentinelChannel(SafeChannel, kombu_redis.SentinelChannel):
    """The same over Sentinel."""


class SafeTransport(kombu_redis.Transport):
    """Takes a closed connection out of the event loop, which otherwise keeps it, and asks it at each turn, for ever."""

    Channel = SafeChannel
    _loop: Any = None
    _in_each_turn: frozenset[Any] = frozenset()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Adds the connection to the loop, and keeps what has to be removed from it."""
        before = frozenset(loop.on_tick)
        super().register_with_event_loop(connection, loop)
        self._loop, self._in_each_turn = loop, self._in_each_turn | (loop.on_tick - before)

    def close_connection(self, connection: Any) -> None:
        """Removes the connection from the loop, then closes it."""
        if self._loop is not None:
            self._loop.on_tick -= self._in_each_turn
        super().close_connection(connection)


class SafeSentinelTransport(SafeTransport, kombu_redis.SentinelTransport):
    """The same over Sentinel."""

    Channel = SafeSentinelChannel


_TRANSPORTS = {
    "redis": "deputize.shared.queue:SafeTransport",
    "rediss": "deputize.shared.queue:SafeTransport",
    "sentinel": "deputize.shared.queue:SafeSentinelTransport",
}
_ENDS = {"task-succeeded", "task-failed"}


class Dispatcher(EventDispatcher):
    """Sends what happens to tasks only while the worker's heartbeat, sent every two seconds, has a receiver."""

    app: Any
    received: ClassVar = False
    """Whether the last one had a receiver. Celery makes a class of its own of this one for each app."""
    carried_out: ClassVar[dict[str, str]] = {}
    """By the id of a ticket, the other delegation that its task has carried out; "" for none: no end is sent."""

    def send(self, type: str, *options: Any, **fields: Any) -> None:
        of_worker = type.startswith("worker-")
        if type in _ENDS and (id := self.carried_out.pop(fields.get("uuid", ""), None)) is not None:
            if not id:
                return
            fields["uuid"] = id
        if of_worker or self.received:
            super().send(type, *options, **fields)
        if of_worker and self.producer is not None:
            self.__class__.received = self.producer.channel.receivers > 0


TASK = "deputize.run"
QUEUE = "deputize"
POOL = "deputize.worker.celery_pool.pool:AsyncPool"
PRIORITIES = range(10)
"""Callers' priorities: higher first, 5 is the default."""

BATCH = 500
EXIT_MISCONFIGURED = 3
_WHILE_SENDING = {"max_retries": 2, "interval_start": 0.1, "interval_step": 0.2, "interval_max": 0.5}
"""Fails within seconds: the caller gets a 503 and retries, or the janitor sends the ticket."""
_CONFIGURATION = {
    "task_default_queue": QUEUE,
    # Results are ours, stored with the record. With a result backend a dispatch would also subscribe to a
    # channel per delegation, and take 20 s to notice that Redis is down.
    "task_ignore_result": True,
    "result_backend": None,
    # JSON only: unpickling would run code of anyone with write access to Redis.
    "task_serializer": "json",
    "result_serializer": "json",
    "accept_content": ["json"],
    "task_publish_retry_policy": _WHILE_SENDING,
    # Only for a queueing time in Flower, at 40 % of the dispatch rate.
    "task_send_sent_event": False,
    "worker_pool": POOL,
    # Late acknowledgement on Redis loses messages (the pop and the note of it are two steps), repeats tasks that
    # outlive the visibility timeout and, in Celery 5.7.0, ends the worker when Redis restarts.
    "task_acks_late": False,
    "task_reject_on_worker_lost": False,
    # An early acknowledged ticket must not wait inside a busy worker while another one is idle.
    "worker_disable_prefetch": True,
    "worker_prefetch_multiplier": 1,
    # Start order does not matter, and reconnecting is never given up.
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    # A delegation outlives a broken connection; its lease decides, not the broker.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    # For Flower, and for `celery events`. They are lossy: monitoring only, never logic.
    "worker_send_task_events": True,
    # Logging is set up once, by shared/log.py.
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
}
_TRANSPORT_OPTIONS = {
    "global_keyprefix": KEY_PREFIX,
    # One list for each of our priorities instead of four, so that 6 really comes before 5.
    "priority_steps": list(PRIORITIES),
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    # Detects a connection that died silently: the worker would hang in a read for ever.
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
    "health_check_interval": 5,
    # kombu's default of 10 raises when it is reached instead of waiting.
    "max_connections": 50,
    **_WHILE_SENDING,  # for making the connection
}


@dataclass(frozen=True)
class Ticket:
    """A message for one delegation in the queue of runs: the worker that gets it claims the next one of that queue.

    Only the id matters; the title is for logs and Flower.
    """

    id: str
    title: str = ""
    priority: int = 5
    queue: str = QUEUE


def create_app(settings: Settings, redis_url: str) -> Celery:
    """Returns the Celery app of this process. It is configured here alone; nothing reads the environment."""
    TRANSPORT_ALIASES.update(_TRANSPORTS)
    address, options = broker_of(redis_url)
    app = Celery("deputize", broker=address, set_as_current=False)
    app.events.dispatcher_cls = Dispatcher
    app.conf.update(
        _CONFIGURATION,
        worker_concurrency=settings.concurrency,
        worker_soft_shutdown_timeout=settings.shutdown_seconds,
        broker_transport_options={**_TRANSPORT_OPTIONS, **options},
    )
    app.conf.broker_use_ssl = tls_options(redis_url)
    return app


def send_tickets(app: Celery, tickets: Sequence[Ticket]) -> None:
    """Puts all tickets on their queues in few round trips. Blocks: not for an event loop's thread.

    Raises Unavailable within seconds if Redis does not answer; some of the tickets may have been sent by then, which
    is harmless, because a ticket starts nothing where no run waits.
    """
    try:
        with app.producer_or_acquire() as producer, producer.batch(BATCH):
            for ticket in tickets:
                app.send_task(
                    TASK,
                    args=[ticket.id],
                    task_id=ticket.id,
                    queue=ticket.queue,
                    priority=broker_priority(ticket.priority),
                    argsrepr=repr(masked(ticket.title)),
                    kwargsrepr="{}",
                    producer=producer,
                    retry=False,
                )
    except (kombu.exceptions.KombuError, redis.exceptions.RedisError, OSError) as error:
        raise Unavailable("Redis does not take new work now; try again in a few seconds") from error


def broker_priority(priority: int) -> int:
    """Returns the priority in kombu's order: its Redis transport serves 0 first."""
    if priority not in PRIORITIES:
        raise ValueError(f"priority {priority} is not in 0–9")
    return PRIORITIES[-1] - priority


def broker_of(redis_url: str) -> tuple[str, Mapping[str, Any]]:
    """Returns the address in Celery's form, and further options of its transport."""
    if is_of_sentinel(redis_url):
        return SentinelAddress.of(redis_url).broker()
    return broker_url(redis_url), {}


def broker_url(redis_url: str) -> str:
    """Returns the address in Celery's form: ``unix:///x.sock?db=1`` is ``redis+socket:///x.sock?virtual_host=1``."""
    parts = urlsplit(redis_url)
    if parts.scheme == "rediss":
        return parts._replace(query=urlencode(_query(redis_url, tls=False))).geturl()
    if parts.scheme == "redis":
        return redis_url
    if parts.scheme != "unix":
        raise Misconfigured(f"redis_url: {parts.scheme}:// is not redis://, rediss:// or unix://")
    query = [("virtual_host" if name == "db" else name, value) for name, value in parse_qsl(parts.query)]
    return f"redis+socket://{parts.netloc}{parts.path}" + (f"?{urlencode(query)}" if query else "")


def tls_options(redis_url: str) -> dict[str, Any] | None:
    """Returns Celery's own form of the TLS options in a ``rediss://`` address; None without TLS.

    Celery and Flower take them from nowhere else: kombu would verify no certificate, and Flower would not connect.
    """
    if urlsplit(redis_url).scheme != "rediss":
        return None
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True, **_query(redis_url, tls=True)}


def _query(redis_url: str, *, tls: bool) -> dict[str, str]:
    return {name: text for name, text in parse_qsl(urlsplit(redis_url).query) if name.startswith("ssl_") is tls}


@cache
def _app_of_this_process() -> Celery:
    keep_memory_private()  # Flower's password and the address of Redis
    settings = Settings.load()
    if settings.redis_url is None:
        raise Misconfigured("DEPUTIZE_REDIS_URL is not set; `deputize up --flower` runs Flower on the embedded Redis")
    signals.celeryd_init.connect(_refuse_worker)
    return create_app(settings, settings.redis_url)


def _refuse_worker(**_: Any) -> None:
    sys.stderr.write("celery: this app's workers need the set-up of `deputize worker`; start that instead\n")
    raise SystemExit(EXIT_MISCONFIGURED)


def __getattr__(name: str) -> Celery:
    # `celery -A shared.queue:app flower` wants a module attribute; importing this module must not read settings.
    if name == "app":
        try:
            return _app_of_this_process()
        except DeputizeError as error:
            sys.stderr.write(f"celery: {error}\n")
            raise SystemExit(EXIT_MISCONFIGURED) from None
    raise AttributeError(name)
