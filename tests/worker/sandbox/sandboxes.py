"""Sandboxes for tests: a workspace of their own, short commands, and whether anything is still alive."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deputize.shared.settings import SandboxSettings
from deputize.worker.contracts import Command, Completed
from deputize.worker.sandbox import environment
from deputize.worker.sandbox.bounds import WorkerBounds
from deputize.worker.sandbox.bubblewrap import Bubblewrap

DAEMON = "mkfifo alive; setsid sh -c 'exec sleep 1000 <alive' & exec 3>alive"
"""Leaves a process that has left its shell's session and would outlive it; ``anyone_alive`` sees it."""
LAST_WORDS = "mkfifo never; trap 'echo bye; exit 0' TERM; echo up; while :; do read -rt 0.1 line; done <>never"
"""Answers SIGTERM. A signal just before ``read`` waits is handled only after that, so it waits for short times."""


@contextmanager
def sandbox_over(folder: Path, *, limits: SandboxSettings | None = None, **more: Any) -> Generator[Bubblewrap]:
    """A sandbox over the new directory ``folder``, which belongs to whom commands run as."""
    if limits:
        with WorkerBounds(limits).run(folder) as bounds, sandbox_over(folder, bounds=bounds, **more) as sandbox:
            yield sandbox
        return
    folder.mkdir()
    if owner := environment.owner():
        os.chown(folder, *owner)
    with Bubblewrap(folder, **more) as sandbox:
        yield sandbox


def bash(script: str, timeout: float = 20, **more: Any) -> Command:
    return Command(["/bin/bash", "--noprofile", "--norc", "-c", script], timeout, **more)


async def said(sandbox: Bubblewrap, script: str, timeout: float = 150, **more: Any) -> str:
    """What a script writes, both streams, without the white space around it."""
    done = await sandbox.run(bash(script, timeout, **more))
    assert not done.timed_out, done
    return (done.stdout + done.stderr).decode("utf-8", "replace").strip()


def unheard(data: bytes) -> None:
    """Where output goes that no test looks at."""


def outcome(done: Completed) -> tuple[int, bytes, bytes]:
    return done.exit_code, done.stdout, done.stderr


def anyone_alive(folder: Path) -> bool:
    """Whether the pipe is still read that DAEMON made: a pipe knows, whatever the process did to hide."""
    try:
        os.close(os.open(folder / "alive", os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return False
    return True


def processes_named(word: str) -> list[int]:
    """Processes whose command line, with spaces between its arguments, holds the word."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        if word.encode() in line and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found
