"""Regular expressions of a script have a time, of their own computing and not of the process's."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import pytest

from shared.errors import ModelUnavailable
from worker.models.script import search

PATTERN = "(?:x.*){3}[yz]"
"""Takes the cube of the text's length."""
OTHERS = 12


def seconds_for(text: str) -> float:
    begun = time.thread_time()
    assert not search(PATTERN, text)
    return time.thread_time() - begun


@contextmanager
def others_computing() -> Generator[None]:
    """Threads that compute beside this one, without the interpreter's lock."""
    over = Event()

    def compute() -> None:
        while not over.is_set():
            hashlib.sha256(bytes(2_000_000))

    with ThreadPoolExecutor(OTHERS) as threads:
        for _ in range(OTHERS):
            threads.submit(compute)
        try:
            yield
        finally:
            over.set()


@pytest.mark.requirement("P-03")
def test_a_pattern_has_its_time_whatever_other_runs_compute_meanwhile() -> None:
    text = "x" * 100
    while seconds_for(text) < 0.06:
        text += "x" * 20
    with others_computing():
        assert not search(PATTERN, text)


def test_a_pattern_that_takes_too_long_is_stopped() -> None:
    with pytest.raises(ModelUnavailable, match=r"takes more than 0\.5 s"):
        search(PATTERN, "x" * 20_000)
