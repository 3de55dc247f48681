"""The fix of Celery is still needed: when this fails it can go."""

from __future__ import annotations

from celery.utils.threads import LocalStack
from greenlet import greenlet


def test_celery_keeps_the_running_request_for_one_greenlet_alone() -> None:
    stack = LocalStack()
    greenlet(lambda: stack.push("a request")).switch()
    assert stack.top is None
