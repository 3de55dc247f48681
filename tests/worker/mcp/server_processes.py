"""The processes of MCP servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.leaks import descendants

_there_before = set[int]()


@pytest.fixture
def look_around() -> None:
    """Other tests' servers, such as Redis, stay up for the whole session."""
    _there_before.clear()
    _there_before.update(descendants())


def started() -> set[int]:
    """The processes that this test has started and that are not yet gone."""
    return descendants() - _there_before


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
