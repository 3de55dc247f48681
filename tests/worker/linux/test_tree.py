"""Command lines of real processes in every state that has none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from deputize.worker.linux.tree import MAX_LINE, command_line
from tests.waiting import until_sync


@pytest.fixture
def ended() -> Iterator[int]:
    """A process that has ended and that was not waited for."""
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield process.pid


def test_a_command_line_is_its_words_up_to_a_length() -> None:
    with subprocess.Popen(["sleep", "1000", "--", "9" * MAX_LINE]) as process:
        assert until_sync(lambda: command_line(process.pid)) == f"sleep 1000 -- {'9' * MAX_LINE}"[:MAX_LINE]
        process.kill()


def test_a_process_that_has_ended_has_none_before_and_after_it_is_reaped(ended: int) -> None:
    assert command_line(ended) is None
    os.waitpid(ended, 0)
    assert command_line(ended) is None


def test_a_process_with_a_program_and_no_words_yet_has_an_empty_one() -> None:
    """What /proc shows in the middle of an exec lasts for microseconds; without words it stays so."""
    with subprocess.Popen([""], executable="cat", stdin=subprocess.PIPE) as process:
        until_sync(lambda: command_line(process.pid) == "")
        process.kill()
