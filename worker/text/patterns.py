"""Regular expressions with a time limit, measured as computing time of the thread that searches.

``regex`` can be stopped inside one match, which ``re`` cannot, but its own time limit counts the computing time of the
whole process: other threads would use it up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import regex

T = TypeVar("T")


class ComputeLimit:
    """Computing time of this thread, for one search or for several together."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.thread_time() + seconds

    @property
    def left(self) -> float:
        return self._end - time.thread_time()


def search(pattern: regex.Pattern[str], text: str, limit: ComputeLimit) -> regex.Match[str] | None:
    """Returns the first match. Raises TimeoutError where the limit is used up."""
    return _limited(lambda timeout: pattern.search(text, timeout=timeout, concurrent=True), limit)


def matches_whole(pattern: regex.Pattern[str], text: str, limit: ComputeLimit) -> bool:
    """Returns whether the pattern matches the whole text. Raises TimeoutError where the limit is used up."""
    return _limited(lambda timeout: pattern.fullmatch(text, timeout=timeout, concurrent=True) is not None, limit)


def matches(pattern: regex.Pattern[str], text: str, limit: ComputeLimit) -> list[regex.Match[str]]:
    """Returns all matches. Raises TimeoutError where the limit is used up."""
    return _limited(lambda timeout: [*pattern.finditer(text, timeout=timeout, concurrent=True)], limit)


def _limited(find: Callable[[float], T], limit: ComputeLimit) -> T:
    timeout = left = limit.left
    while left > 0:
        try:
            return find(timeout)
        except TimeoutError:  # this thread's work, or that of others
            timeout, left = 2 * timeout, limit.left
    raise TimeoutError(f"the search takes more than {limit.seconds:g} s")
