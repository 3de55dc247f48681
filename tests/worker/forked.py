"""A piece of a test carried out in a forked child: as another user, or to be killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ORDINARY_UID = 61001


def in_child(work: Callable[[], Any], uid: int | None = None) -> Any:
    """What ``work`` gives, as JSON, from a child that runs as ``uid``; fails the test with the child's traceback."""
    answer, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(answer)
            if uid is not None:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            text = json.dumps({"value": work()})
        except BaseException:  # noqa: BLE001 - the parent raises it
            text = json.dumps({"error": traceback.format_exc()})
        os.write(said, text.encode())
        os._exit(0)
    os.close(said)
    with os.fdopen(answer, "rb") as file:
        text = file.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    found = json.loads(text)
    if "error" in found:
        pytest.fail(found["error"])
    return found["value"]


@contextmanager
def home_of_an_ordinary_user() -> Generator[Path]:
    """A directory that user can reach, which those of pytest are not; the test must be root."""
    home = Path(tempfile.mkdtemp(dir="/tmp"))
    os.chown(home, ORDINARY_UID, ORDINARY_UID)
    try:
        yield home
    finally:
        shutil.rmtree(home)


def need_root() -> None:
    """Skips what only root can show, and says so."""
    if os.geteuid() != 0:
        pytest.skip(f"SKIPPED for want of root: this user is {os.geteuid()}")
