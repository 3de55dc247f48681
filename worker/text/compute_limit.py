"""Searches with regular expressions of users and models, which may take for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import regex

T = TypeVar("T")


class ComputeLimit:
    """A time limit for regular expressions, for one search or for several together.

    It is measured as computing time of the thread that searches. ``regex`` can be stopped inside one match, which
    ``re`` cannot, but its own time limit counts the computing time of the whole process: other threads would use it up.
    Each search raises TimeoutError where the limit is used up.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.thread_time() + seconds

    def search(self, pattern: regex.Pattern[str], text: str) -> regex.Match[str] | None:
        return self._limited(lambda timeout: pattern.search(text, timeout=timeout, concurrent=True))

    def matches_whole(self, pattern: regex.Pattern[str], text: str) -> bool:
        return self._limited(lambda timeout: pattern.fullmatch(text, timeout=timeout, concurrent=True) is not None)

    def matches(self, pattern: regex.Pattern[str], text: str) -> list[regex.Match[str]]:
        return self._limited(lambda timeout: [*pattern.finditer(text, timeout=timeout, concurrent=True)])

    def _limited(self, find: Callable[[float], T]) -> T:
        timeout = left = self._end - time.thread_time()
        while left > 0:
            try:
                return find(timeout)
            except TimeoutError:  # this thread's work, or that of others
                before, left = left, self._end - time.thread_time()
                timeout = min(2 * timeout, left * timeout / (before - left))
        raise TimeoutError(f"the search takes more than {self.seconds:g} s")
