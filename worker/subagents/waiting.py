"""Waiting for child delegations: the run keeps its coroutine, but frees its slot for another run."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from shared.delegation import Status
from worker.emit import Emitter


class Waiting:
    """The waits of one run. However many there are at once, its one slot is freed, and its record is marked waiting."""

    def __init__(self, slot: Callable[[], AbstractContextManager[None]], emit: Emitter) -> None:
        self._slot = slot
        self._emit = emit
        self._waits = 0
        self._given_back = ExitStack()

    @contextmanager
    def begun(self) -> Generator[None]:
        """Frees the slot while the block runs."""
        self._waits += 1
        if self._waits == 1:
            self._given_back.enter_context(self._slot())
            self._emit.set({"status": Status.WAITING.value})
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits:
                self._given_back.close()
                self._emit.set({"status": Status.RUNNING.value})
