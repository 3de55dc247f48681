"""The limit of open files is raised as far as a process may raise it, and not without end."""

from __future__ import annotations

import resource

import pytest

from deputize.shared.open_files import MOST, limit, raise_limit
from tests.worker.forked import in_child


def raised(soft: int, hard: int, most: int = MOST) -> list[int]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return [raise_limit(most), limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]


@pytest.mark.parametrize(("soft", "hard", "most"), [(200, 300, 300), (300, 300, 300)])
def test_the_limit_is_raised_to_what_the_process_may_have(soft: int, hard: int, most: int) -> None:
    assert in_child(lambda: raised(soft, hard)) == [most] * 3


def test_this_process_raises_its_own_limit_again() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert raise_limit(soft) == limit() == soft
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("soft", "now"), [(200, 250), (270, 270)])
def test_it_is_raised_no_further_than_programs_bear(soft: int, now: int) -> None:
    assert in_child(lambda: raised(soft, 300, 250)) == [now] * 3
