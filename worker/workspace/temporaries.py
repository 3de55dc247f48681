"""The names under which files are written before they get their own."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager

TEMPORARY = ".deputize-writing-"
_being_written: set[str] = set()


@contextmanager
def temporary_name() -> Generator[str]:
    """A name that nobody has; it counts as ours while the block lasts, and so is shown to nobody."""
    name = TEMPORARY + secrets.token_hex(8)
    _being_written.add(name)
    try:
        yield name
    finally:
        _being_written.discard(name)


def is_being_written(name: str) -> bool:
    """Whether this process is writing a file of that name now. Anybody can make a file that is only called so."""
    return name in _being_written
