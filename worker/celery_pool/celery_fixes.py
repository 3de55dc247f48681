"""Fixes of Celery 5.7.0 for jobs that are coroutines.

``tests/worker/celery_pool/test_celery_fixes.py`` fails as soon as a fix is not needed any more.
"""

from __future__ import annotations

import threading
from typing import Any

from celery import Celery, _state

from .job import current_job


def share_request_stacks(app: Celery) -> None:
    """Makes ``self.request`` and ``self.retry`` work inside coroutines.

    Celery keeps the running request in stacks per greenlet or thread. The tracer pushes in its own greenlet, the
    coroutine reads in the loop's: with this fix both use the stack of their job.
    """

    def identity() -> Any:
        return current_job.get() or threading.get_ident()

    _state._task_stack.__ident_func__ = identity  # pyright: ignore[reportPrivateUsage]
    for task in app.tasks.values():
        task.request_stack.__ident_func__ = identity
