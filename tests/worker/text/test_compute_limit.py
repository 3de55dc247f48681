"""Regular expressions that take too long are stopped, whatever other threads compute meanwhile."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest
import regex

from deputize.shared.errors import ErrorType, ModelUnavailable, ToolError
from deputize.worker.models import scripted
from deputize.worker.sandbox.buffers import LineFilter
from deputize.worker.text.compute_limit import ComputeLimit
from tests.sampling import sampled

PATTERN = regex.compile("(?:x.*){3}[yz]")
"""Takes the cube of the text's length."""
SECONDS = 0.1
OTHERS = 8


def seconds_for(text: str) -> float:
    begun = time.thread_time()
    assert ComputeLimit(60).search(PATTERN, text) is None
    return time.thread_time() - begun


@contextmanager
def others_computing() -> Generator[None]:
    """Threads that compute beside this one, without the interpreter's lock."""
    over = Event()

    def compute() -> None:
        while not over.is_set():
            hashlib.sha256(bytes(500_000))

    with ThreadPoolExecutor(OTHERS) as threads:
        for _ in range(OTHERS):
            threads.submit(compute)
        try:
            yield
        finally:
            over.set()


@pytest.mark.requirement("P-03")
@pytest.mark.parametrize("find", sampled({"search": ComputeLimit.search, "matches": ComputeLimit.matches}, 2))
def test_a_pattern_has_its_time_whatever_other_threads_compute_meanwhile(find: Callable[..., Any]) -> None:
    """A fifth of the limit leaves room for tries that the others' computing has cut short."""
    text, seconds = "x" * 100, 0.3
    while seconds_for(text) < seconds / 5:
        text += "x" * 10
    with others_computing():
        assert not find(ComputeLimit(seconds), PATTERN, text)


def test_several_searches_have_their_time_together() -> None:
    limit = ComputeLimit(SECONDS)
    with pytest.raises(TimeoutError, match=r"takes more than 0\.1 s"):
        any(limit.search(PATTERN, "x" * 100) for _ in range(1000))


def test_a_pattern_of_a_script_that_takes_too_long_is_stopped() -> None:
    with pytest.raises(ModelUnavailable, match=r"takes more than 0\.5 s"):
        scripted.render(f"{{{{task /{PATTERN.pattern}/}}}}", scripted.TemplateContext("x" * 20_000, ()))


def test_a_filter_that_takes_too_long_is_stopped() -> None:
    with pytest.raises(ToolError, match=r"the filter took longer than 0\.1 s") as caught:
        LineFilter(PATTERN.pattern).matches(["short", "x" * 20_000], SECONDS)
    assert caught.value.type is ErrorType.TIMEOUT


def test_a_search_that_others_cut_short_is_not_begun_anew_for_longer_than_is_left() -> None:
    def shorter() -> None:  # a limit is of the thread that makes it
        ComputeLimit(SECONDS / 5).search(PATTERN, "x" * 20_000)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(shorter)
        begun = time.thread_time()
        with pytest.raises(TimeoutError):
            ComputeLimit(SECONDS).search(PATTERN, "x" * 20_000)
        assert time.thread_time() - begun < 2 * SECONDS
