"""When the garbage collector of a worker's process looks at what, so that it neither holds the loop up nor grows."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

ENDED_RUNS = 40
"""After so many ended runs, and as many as are under way, their memory is freed."""


@dataclass(slots=True)
class RunGarbage:
    """Frees the memory of ended runs. Their objects refer to each other in circles, which only a collection finds.

    A collection of its own would look at all objects each time, and hold the loop up for up to a second beside a
    thousand young runs. So automatic ones are rare. One here takes the time of the objects of runs under way, and comes
    once for as many that have ended.
    """

    _under_way: int = 0
    _ended: int = 0
    _is_frozen: bool = False

    @contextmanager
    def of_run(self) -> Generator[None]:
        """Surrounds one run. The first end freezes all objects: by then all lazy imports are loaded."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._ended += 1
            if not self._is_frozen:
                self._is_frozen = True
                freeze()
            elif self._ended >= max(ENDED_RUNS, self._under_way):
                self._ended = 0
                gc.collect()


def freeze() -> None:
    """Leaves all objects that there are out of collections, and has automatic ones seldom."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
