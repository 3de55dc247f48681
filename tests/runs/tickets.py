"""The tickets that wait in Redis."""

from __future__ import annotations

from kombu.transport.redis import Channel

from deputize.shared.queue import PRIORITIES, QUEUE
from deputize.shared.runs.keys import KEY_PREFIX


def queue_keys() -> list[str]:
    """The Redis lists of the queue, in the order in which they are served."""
    return [KEY_PREFIX + QUEUE + (f"{Channel.sep}{step}" if step else "") for step in PRIORITIES]
