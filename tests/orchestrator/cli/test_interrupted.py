"""Ctrl-C while the command line is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

AT_AN_IMPORT = """
import os, signal, sys
def interrupt(event, arguments):
    if event == "import" and arguments[0] == MODULE:
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(interrupt)
from deputize.orchestrator.cli import main
main()
"""


def started(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["click", "deputize.orchestrator.cli.errors", "deputize.orchestrator.cli.connect"])
def test_ctrl_c_during_the_imports_ends_a_command_without_a_traceback(module: str) -> None:
    done = started(AT_AN_IMPORT.replace("MODULE", repr(module)), "run", "--help")
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def test_an_interrupt_that_the_parent_ignores_stays_ignored() -> None:
    ignoring = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{AT_AN_IMPORT}"
    done = started(ignoring.replace("MODULE", repr("click")), "run", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: ")


def test_after_the_imports_ctrl_c_is_an_exception_again() -> None:
    script = "import deputize.orchestrator.cli, signal\nprint(signal.getsignal(signal.SIGINT).__name__)"
    assert started(script).stdout == "default_int_handler\n"


def test_the_command_line_is_imported_in_any_thread() -> None:
    script = "import threading\nthreading.Thread(target=lambda: print(__import__('deputize.orchestrator.cli'))).start()"
    assert started(script).stdout.startswith("<module 'deputize'")
