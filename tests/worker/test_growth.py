"""The time of a text: it grows as the text does, and other runs wait for it in short turns only.

Each function is tried with a sample of the shapes. `python -m tests.worker.test_growth [FUNCTION…]` tries all shapes.
"""

from __future__ import annotations

import os
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from tests.architecture.sources import PACKAGES, name, python_files
from tests.worker.growing import MOST, READS, READS_NONE, SHAPES, WORST, readers

pytestmark = [pytest.mark.requirement("P-03"), pytest.mark.growth]
LEAST = 10_000
GROWN = 2.5
FLOOR = 0.1
"""Seconds of computing below which growth is not measured: it is noise."""
HELD = 0.2
"""Seconds for which the interpreter's lock may be held: then all other runs wait."""
TRIES = 4
SAMPLE, LARGE_SAMPLE = 1, 20
"""How many shapes are tried for each function; the large sample by thorough tests."""
SEED = os.environ.get("GROWTH_SEED") or time.strftime("%Y-%m-%d", time.gmtime())
"""The shapes differ by function and day: what fails can be repeated."""


def test_every_function_that_takes_a_text_is_measured_or_has_its_reason() -> None:
    known = {*READS, *(each for names in READS_NONE.values() for each in names)}
    found = {*readers()}
    assert found - known == set(), "add these to tests/worker/growing.py"
    assert known - found == set(), "these do not exist any more"


@pytest.mark.parametrize("function", READS)
def test_the_time_of_a_text_grows_as_the_text_does(function: str, is_thorough: bool) -> None:
    seed = f"{function} {SEED}"
    shapes = random.Random(seed).sample([*SHAPES], LARGE_SAMPLE if is_thorough else SAMPLE)
    shapes = {*shapes, *([WORST[function]] if function in WORST else ())}
    slow = {shape: found for shape in shapes if (found := _mistake(READS[function], SHAPES[shape]))}
    assert slow == {}, f"the shapes were those of the seed {seed!r}"


def _mistake(read: Callable[[str], object], shape: Callable[[int], str]) -> str:
    """Returns what is wrong, "" for nothing. A machine that is busy may only make it slower: the best of some tries."""
    texts = [shape(LEAST << doubled) for doubled in range(3)]
    if _computed(read, texts[1]) > FLOOR and (times := _growth(read, texts)):
        return f"{times} s for {LEAST} characters, twice and four times as many"
    if _computed(read, text := shape(MOST)) > HELD and all(_held(read, text) > HELD for _ in range(TRIES)):
        return f"the interpreter's lock was held for more than {HELD} s by {MOST} characters"
    return ""


def _growth(read: Callable[[str], object], texts: Sequence[str]) -> Sequence[float]:
    """Returns the seconds of each text, none as soon as one is at most ``GROWN`` times those of the text before it.

    Both steps must be longer, as a limit of the function may lie in between.
    """
    least = [float("inf")] * len(texts)
    for _ in range(TRIES):
        least = [min(before, _computed(read, text)) for before, text in zip(least, texts, strict=True)]
        if any(after <= GROWN * before for before, after in pairwise(least)):
            return ()
    return least


def _computed(read: Callable[[str], object], text: str) -> float:
    begun = time.thread_time()
    try:
        read(text)
    except (TypeError, AttributeError):  # a mistake of the table
        raise
    except Exception:  # noqa: BLE001 - most of these texts are refused
        pass
    return time.thread_time() - begun


def _held(read: Callable[[str], object], text: str) -> float:
    """Returns the longest time of computing for which another thread did not get the interpreter's lock meanwhile.

    By the processor's clock of this thread: on a busy machine both wait for other processes, too.
    """
    ended, longest = threading.Event(), 0.0
    clock = time.pthread_getcpuclockid(threading.get_ident())

    def look() -> None:
        nonlocal longest
        before, is_over = time.clock_gettime(clock), False
        while not is_over:
            is_over = ended.wait(0.001)
            now = time.clock_gettime(clock)
            longest, before = max(longest, now - before), now

    looking = threading.Thread(target=look)
    looking.start()
    _computed(read, text)
    ended.set()
    looking.join()
    return longest


@pytest.mark.costly
def test_a_quadratic_function_and_one_that_holds_the_lock_are_found() -> None:
    quadratic = SHAPES["blanks between"]
    assert "four times" in _mistake(re.compile(r" +c").search, quadratic)
    assert "was held" in _mistake(
        lambda text: re.search(" +c", " " * (30_000 * (len(text) > MOST // 2))), SHAPES["base64"]
    )
    assert _mistake(len, quadratic) == ""


def test_no_value_of_a_run_is_computed_under_the_lock_of_its_class() -> None:
    """Python 3.11 has one for all instances of a class with a ``cached_property``."""
    assert [name(path) for path in python_files(*PACKAGES) if "@cached_property" in path.read_text("utf-8")] == []


if __name__ == "__main__":
    for function in sys.argv[1:] or READS:
        found = {shape: mistake for shape, make in SHAPES.items() if (mistake := _mistake(READS[function], make))}
        print(f"{'FAIL' if found else 'ok  '}  {function}  {found or ''}", flush=True)
