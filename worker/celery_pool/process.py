"""The worker process around the pool: progress in Flower, revokes that cancel, and the graceful shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from celery import Celery, signals
from celery.apps.worker import Worker, install_cry_handler
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning
from celery.utils.nodenames import default_nodename, host_format
from celery.worker import state
from celery.worker.control import control_command, ok
from kombu.common import ignore_errors
from kombu.exceptions import KombuError
from kombu.utils.functional import maybe_list
from redis.exceptions import RedisError

from ...shared.errors import DeputizeError
from ...shared.log import log
from ...shared.redis_access import explained
from .pool import CLEANUP_SECONDS, DRAIN_SIGNAL, AsyncPool

SECONDS = 1.0
"""The time between two progress messages of a run."""


class ProgressEvents:
    """Collects the latest progress message of every run and sends it from a thread, because Celery's events block."""

    def __init__(self, app: Celery, hostname: str) -> None:
        self._app = app
        self._hostname = hostname
        self._latest: dict[str, str] = {}

    def update(self, id: str, text: str) -> None:
        self._latest[id] = text

    def drop(self, id: str) -> None:
        """Drops a run that ends, so that an older message does not overwrite its final state in Flower."""
        self._latest.pop(id, None)

    def ended(self, ticket: str, id: str) -> None:
        """Notes which delegation the task of a ticket has carried out: its end is shown as that one's. "": none's."""
        if id != ticket and self._app.events.Dispatcher.received:
            self._app.events.Dispatcher.carried_out[ticket] = id

    async def send_forever(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            news, self._latest = self._latest, {}
            if news and self._app.events.Dispatcher.received:
                await asyncio.to_thread(self._send, news)

    def _send(self, news: dict[str, str]) -> None:
        try:
            with self._app.events.default_dispatcher(hostname=self._hostname) as dispatcher:
                for id, text in news.items():
                    dispatcher.send("task-progress", uuid=id, result=text)
        except (KombuError, RedisError, OSError) as error:  # monitoring is lossy and must never disturb a run
            log.debug("no progress for Flower: %s", error)


SIGNATURE = "[id1 [id2 [... [idN]]]]"


def revoke_means_cancel(cancel: Callable[[Sequence[str]], object]) -> None:
    """Replaces Celery's ``revoke`` and ``terminate`` by ``cancel``, for ``celery control`` and Flower."""

    def cancelled(task_id: Any) -> Any:
        ids = [str(id) for id in maybe_list(task_id) or []]
        cancel(ids)
        return ok(f"asked to cancel {', '.join(ids)}")

    @control_command(name="revoke", variadic="task_id", signature=SIGNATURE)
    def revoke(state: Any, task_id: Any, terminate: bool = False, signal: Any = None, **_: Any) -> Any:
        """Cancel delegations by id, as `deputize cancel` does."""
        return cancelled(task_id)

    @control_command(name="terminate", variadic="task_id", args=[("signal", str)], signature=f"<signal> {SIGNATURE}")
    def terminate(state: Any, signal: Any, task_id: Any, **_: Any) -> Any:
        """Cancel delegations by id; the signal has no meaning here."""
        return cancelled(task_id)


EXIT_FAILED = 1
EXIT_MISCONFIGURED = 3
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)

logger = logging.getLogger(__name__)


def full_name(name: str) -> str:
    """Returns ``worker-<name>@<host>``, stable across restarts, so that Flower's and Prometheus' series continue."""
    return host_format(default_nodename(f"worker-{name}@%h"))


def run(app: Celery, hostname: str, concurrency: int, queues: Sequence[str], log_level: str) -> int:
    """Runs the worker until it is stopped. Returns the process's exit code."""
    # As root, Celery warns of pickled messages, which this app does not accept, and of a default of Celery 6 that
    # shared/queue.py sets.
    warnings.simplefilter("ignore", SecurityWarning)
    warnings.simplefilter("ignore", CPendingDeprecationWarning)
    # Logging is set up already: a receiver of this signal keeps Celery from setting up its own.
    signals.setup_logging.connect(_nothing_more)
    worker = WorkerProcess(
        app=app,
        hostname=hostname,
        concurrency=concurrency,
        queues=list(queues),
        loglevel=log_level,
        quiet=True,
        # Workers coordinate through leases in Redis. Gossip and mingle would only slow the start down.
        without_gossip=True,
        without_mingle=True,
    )
    worker.start()
    if (failure := worker.pool.failure) is None:
        return worker.exitcode or 0
    return EXIT_MISCONFIGURED if isinstance(failure, DeputizeError) else EXIT_FAILED


class WorkerProcess(Worker):
    """Celery's worker with the graceful shutdown of this module."""

    pool: AsyncPool
    consumer: Any

    class Blueprint(Worker.Blueprint):
        """Celery's blueprint; a Redis that denies access to the queue is one log line and EXIT_MISCONFIGURED."""

        def start(self, parent: Any) -> None:
            try:
                super().start(parent)
            except RedisError as error:
                if (refusal := explained(error)) is None:
                    raise
                logger.critical("%s", refusal)
                raise SystemExit(EXIT_MISCONFIGURED) from error

    def install_platform_tweaks(self, worker: Any) -> None:
        install_cry_handler()  # SIGUSR1 shows what every thread does
        Stopper(self, worker.app.conf.worker_soft_shutdown_timeout).start()


class Stopper(threading.Thread):
    """Waits for a stop signal, then for the jobs. With ``DRAIN_SIGNAL`` the jobs end, too, and the worker stays."""

    def __init__(self, worker: WorkerProcess, soft_seconds: float) -> None:
        super().__init__(name="stopper", daemon=True)
        self._worker = worker
        self._pool = worker.pool
        self._soft_seconds = soft_seconds
        self._stops = self._drains = False
        # Signals arrive as bytes in this pipe: written by the interpreter itself, outside of any lock.
        self._asked, asked = os.pipe()
        os.set_blocking(asked, False)
        signal.set_wakeup_fd(asked, warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, DRAIN_SIGNAL):
            signal.signal(number, _nothing_more)

    def run(self) -> None:
        while not self._stops:
            self._asked_again(None)
            if self._drains and not self._pool.draining and not self._stops:
                self._drain()
        logger.info("asked to stop; %d jobs have %.0f s to end", self._pool.running, self._soft_seconds)
        self._end_jobs(self._soft_seconds)
        state.should_terminate = 0  # not None: that is the exit code
        self._pool.call_soon_in_consumer(_nothing_more)

    def _drain(self) -> None:
        logger.info("asked to drain; %d jobs have %.0f s to end", self._pool.running, self._soft_seconds)
        self._pool.draining = True
        cancelled = threading.Event()

        def consume_no_more() -> None:
            # Deselected, too: with a new connection to Redis Celery would consume the queues again.
            queues = self._pool.app.amqp.queues
            queues.deselect([*queues.consume_from])
            self._take_no_more()
            cancelled.set()

        while not (cancelled.is_set() or self._stops):  # until then tickets become jobs
            self._pool.call_soon_in_consumer(consume_no_more)  # again where the consumer was just starting
            self._asked_again(0.1)
        self._end_jobs(0 if self._stops else self._soft_seconds)
        logger.info("drained; the worker stays without jobs until it is stopped")

    def _end_jobs(self, seconds: float) -> None:
        """Asks the jobs to end and lets them do it for so long, then hands over the others."""
        # In this order: what is handed over must not come back here.
        self._pool.call_soon_in_consumer(self._take_no_more)
        self._pool.call_soon_in_consumer(self._pool.hand_over)
        if not self._jobs_end_within(seconds):
            # Celery announces their state; it can do so only while it is connected to Redis.
            self._pool.call_soon_in_consumer(self._worker.consumer.cancel_active_requests)
            self._pool.cancel_all()
            self._jobs_end_within(2 * CLEANUP_SECONDS)

    def _asked_again(self, seconds: float | None) -> bool:
        """Waits for a signal. Returns whether it is one to stop."""
        if not select.select([self._asked], [], [], seconds)[0]:
            return False
        heard = os.read(self._asked, 64)
        self._drains = self._drains or DRAIN_SIGNAL in heard
        asked = any(number in STOP_SIGNALS for number in heard)
        self._stops = self._stops or asked
        return asked

    def _jobs_end_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._pool.running and time.monotonic() < deadline:
            # Repeatedly: after a lost connection Celery would resume consuming with the new one.
            self._pool.call_soon_in_consumer(self._take_no_more)
            if self._asked_again(0.1):
                return False
        return not self._pool.running

    def _take_no_more(self) -> None:
        # Celery's slots stay open, so that a message that Redis is just delivering is read and requeued.
        consumer = self._worker.consumer
        if consumer.task_consumer:
            ignore_errors(consumer, consumer.task_consumer.cancel)


def _nothing_more(*_: Any, **__: Any) -> None:
    """A signal's handler must exist for its byte to be written, and a call wakes Celery's main loop."""
