"""A piece of a test carried out in a forked child: as another user, or to be killed."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from tests.processes.ordinary_user import become_ordinary


def in_child(work: Callable[[], Any], *, ordinary: bool = False) -> Any:
    """What ``work`` returns, as JSON, from a child that stays this user or becomes an ordinary one.

    Fails the test with the child's traceback.
    """
    answer, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(answer)
            if ordinary:
                become_ordinary()
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


def need_root() -> None:
    """Skips what only root can show, with that reason."""
    if os.geteuid() != 0:
        pytest.skip(f"SKIPPED for want of root: this user is {os.geteuid()}")
