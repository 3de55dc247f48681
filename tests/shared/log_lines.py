"""What a logger writes, as the lines of a process are."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from deputize.shared.log import _Lines


@contextmanager
def lines_of(logger: logging.Logger) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """What the logger writes, as JSON."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(_Lines())
    logger.addHandler(handler)
    try:
        yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    finally:
        logger.removeHandler(handler)
