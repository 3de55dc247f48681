"""How long the failures of one turn are borne, by a clock that the test moves."""

from __future__ import annotations

import pytest

from worker.models.retry import Failure, Outage, RetryPolicy


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def outage_of(
    retry_policy: RetryPolicy, *, try_seconds: float = 0.0, replied: bool = False, asked: float | None = None
) -> list[float]:
    """The delays until an endpoint is given up whose every try fails after so many seconds."""
    clock, delays = Clock(), list[float]()
    outage = Outage(retry_policy, clock)
    failure = Failure("overloaded", retryable=True, retry_after=asked)
    while len(delays) < 10_000:
        outage.begin_try()
        clock.now += try_seconds
        delay = outage.next_delay(failure, replied=replied)
        if delay is None:
            return delays
        delays.append(delay)
        clock.now += delay
    raise AssertionError("never given up")


def test_failures_are_borne_for_the_whole_time_and_no_longer() -> None:
    delays = outage_of(RetryPolicy(seconds=300))
    assert sum(delays) == pytest.approx(300)
    assert len(delays) > 10
    assert max(delays) <= RetryPolicy().longest_delay


def test_the_time_of_tries_that_got_nothing_counts_too() -> None:
    assert len(outage_of(RetryPolicy(seconds=300), try_seconds=120)) in (3, 4)


def test_the_first_try_may_take_longer_than_failures_are_borne() -> None:
    assert len(outage_of(RetryPolicy(seconds=10, first_delay=1), try_seconds=100)) == 1


def test_the_time_of_replies_that_were_cut_does_not_count() -> None:
    delays = outage_of(RetryPolicy(seconds=300), try_seconds=600, replied=True)
    assert sum(delays) == pytest.approx(300)


@pytest.mark.parametrize(("asked", "first"), [(45, (45, 49.5)), (290, (290, 300)), (100_000, (300, 300))])
def test_a_retry_after_is_honoured_as_far_as_the_time_allows(asked: float, first: tuple[float, float]) -> None:
    delays = outage_of(RetryPolicy(seconds=300), asked=asked)
    assert first[0] <= delays[0] <= first[1]
    assert sum(delays) == pytest.approx(300)


def test_many_tries_do_not_overflow_the_delay() -> None:
    assert RetryPolicy().delay(5000, None) <= RetryPolicy().longest_delay


@pytest.mark.parametrize(
    "failure", [Failure("wrong key", retryable=False), Failure("too long", retryable=True, too_long=True)]
)
def test_what_would_fail_again_is_given_up_at_once(failure: Failure) -> None:
    assert Outage(RetryPolicy()).next_delay(failure, replied=False) is None


def test_no_time_for_failures_means_one_try() -> None:
    assert outage_of(RetryPolicy(seconds=0)) == []
