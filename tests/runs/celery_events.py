"""Celery's events as tests see them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from celery import Celery


class Events:
    """What all workers say, from the moment the block begins."""

    def __init__(self, app: Celery) -> None:
        self._receiver = app.events.Receiver(app.connection_for_read(), handlers={"*": self._got})
        self._listening = self._receiver.consumer_context()
        self._seen: list[dict[str, Any]] = []

    def __enter__(self) -> Events:
        self._connection, *_ = self._listening.__enter__()
        self._drain()  # kombu subscribes when it first reads
        self._receiver.wakeup_workers(self._receiver.channel)
        self.wait_until(lambda event: event["type"].startswith("worker-"))  # from then on the worker sends them
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.__exit__(None, None, None)
        self._receiver.connection.release()

    def _got(self, event: dict[str, Any]) -> None:
        self._seen.append(event)

    def _drain(self) -> None:
        with suppress(TimeoutError):
            self._connection.drain_events(timeout=0.1)

    def wait_for(self, type: str, id: str, timeout: float = 60) -> dict[str, Any]:
        return self.wait_until(lambda event: (event["type"], event.get("uuid")) == (type, id), timeout)

    def wait_until(self, wanted: Callable[[dict[str, Any]], bool], timeout: float = 60) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for event in self._seen:
                if wanted(event):
                    return event
            self._drain()
        raise AssertionError(f"not within {timeout} s; there were {self._seen}")
