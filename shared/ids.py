"""Ids: ``dlg_`` and a lower-case ULID, so that they sort by time."""

from __future__ import annotations

import re
import secrets
import threading
import time
from datetime import datetime

ID = re.compile("dlg_[0-9a-z]{26}")
"""The id of a delegation."""
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_lock = threading.Lock()
_last = 0


def new_id(prefix: str = "dlg") -> str:
    """Returns a new id: 48 bits of milliseconds and 80 random bits, 26 characters of Crockford's base 32.

    Ids of one process are strictly increasing, also within a millisecond, so that lists are in creation order.
    """
    global _last  # noqa: PLW0603 - rising needs a memory, and a process has one clock
    with _lock:
        _last = number = max(time.time_ns() // 1_000_000 << 80 | secrets.randbits(80), _last + 1)
    return _written(prefix, number)


def first_id(moment: datetime, prefix: str = "dlg") -> str:
    """Returns the smallest id of that moment: later delegations have greater ones."""
    return _written(prefix, max(0, int(moment.timestamp() * 1000)) << 80)


def moment_of(id: str) -> float:
    """Returns when an id was made, in seconds since the epoch."""
    number = 0
    for character in id.partition("_")[2]:
        number = number << 5 | _ALPHABET.index(character)
    return (number >> 80) / 1000


def _written(prefix: str, number: int) -> str:
    return f"{prefix}_" + "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))
