"""A process between the worker and a server outside of the sandbox: ``python -I subreaper.py FD``.

Nothing that the server starts outlives it, however it was detached: orphans become children of this process, which
kills them when the server or the worker has ended. It imports only the standard library, to start fast and stay small.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

END_ALL = signal.SIGUSR1
"""The signal to kill everything at once. The kernel also sends it when the worker dies."""
_WAITED = {signal.SIGCHLD, signal.SIGTERM, END_ALL}
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE = 10.0
_TICK = 0.002
_NOT_STARTED = 127
_libc = ctypes.CDLL(None, use_errno=True)


def described(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> bytes:
    """Returns the command for the descriptor; other users could read it from this process's arguments or variables."""
    return json.dumps({"argv": [*argv], "env": {**env}, "cwd": cwd, "parent": os.getpid()}).encode()


def main() -> NoReturn:
    # Blocked, so that no signal is lost before it is waited for, or ends this process before the server.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_WAITED, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, END_ALL, 0, 0, 0)
    with os.fdopen(int(sys.argv[1]), encoding="utf-8") as file:
        asked = json.load(file)
    if os.getppid() != asked["parent"]:  # the worker died before the death signal was set
        os._exit(_NOT_STARTED)
    ours = os.getpid()
    program = os.fork()
    if not program:
        _become(asked, ours)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):  # only the server may hold the pipes, so that they end with it
        os.dup2(nowhere, fd)
    code = _attended(program)
    _end_children()
    os._exit(code)


def _become(asked: Mapping[str, Any], parent: int) -> NoReturn:
    argv: list[str] = asked["argv"]
    what = "its working directory"
    try:
        os.setsid()
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(_NOT_STARTED)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and its children would inherit that
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(asked["cwd"])
        what = Path(argv[0]).name
        os.execvpe(argv[0], argv, asked["env"])  # noqa: S606 - no shell is wanted
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        os.write(2, f"it cannot be started: {what}: {why}\n".encode("utf-8", "replace"))
    os._exit(_NOT_STARTED)


def _attended(program: int) -> int:
    """Returns the program's exit code, or 128 plus the signal that ended it."""
    while True:
        number = signal.sigwait(_WAITED)
        if number == END_ALL:
            return 128 + signal.SIGKILL
        if number == signal.SIGTERM:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(program, signal.SIGTERM)
            continue
        for pid, status in _ended():
            if pid == program:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code


def _end_children() -> None:
    """Kills children until none are left: this process adopts those of a killed one. Gives up after a deadline."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        for pid in Path("/proc/thread-self/children").read_text("ascii").split():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(pid), signal.SIGKILL)
        _ended()
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        time.sleep(_TICK)


def _ended() -> list[tuple[int, int]]:
    """Returns pids and wait statuses of the children that have ended since the last call."""
    found: list[tuple[int, int]] = []
    with suppress(ChildProcessError):
        while (each := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(each)
    return found


if __name__ == "__main__":
    main()
