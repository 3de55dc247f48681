"""Ports of a command's own loopback that are served from outside of its sandbox: its proxy, and the run's services.

The first program of the sandbox opens the sockets, hands their descriptors to the worker and becomes the command. So
nothing in the sandbox serves them, and no namespace is shared.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

from ...shared.errors import Misconfigured
from .environment import SYSTEM, BindMount, is_below, program

_LAUNCHER = """
import os, signal, socket, sys
channel, ports = socket.socket(fileno=int(sys.argv[1])), sys.argv[2].split(",")
listeners = [socket.create_server(("127.0.0.1", int(port)), backlog=64) for port in ports]
socket.send_fds(channel, [b"."], [each.fileno() for each in listeners])
for each in (channel, *listeners):
    each.close()
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
try:
    os.execvp(sys.argv[3], sys.argv[3:])
except OSError as error:
    sys.stderr.write(f"{sys.argv[3]}: {error.strerror}\\n")
    sys.exit(127 if isinstance(error, FileNotFoundError) else 126)
"""
"""The signals are those that Python ignores, and an ignored one would stay so for the command."""
Report = Callable[[str], None]
Serve = Callable[[socket.socket, Report], Coroutine[Any, Any, None]]
"""Serves one command's socket, which it owns, until it is cancelled."""


class CommandPorts:
    """The ports of one command, each with what serves it."""

    def __init__(self, served: Mapping[int, Serve], report: Report, fds: list[int]) -> None:
        """Adds the descriptor for the launcher to ``fds``."""
        self._served = served
        self._report = report
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        self._launcher_fd = theirs.detach()
        fds.append(self._launcher_fd)
        self._serving: list[asyncio.Task[None]] = []

    def launcher(self, mounts: Iterable[BindMount]) -> list[str]:
        """Returns what comes before a command's arguments. Raises Misconfigured if the sandbox has no Python."""
        ports = ",".join(map(str, self._served))
        return [*python_with(_LAUNCHER, mounts), str(self._launcher_fd), ports]

    def begin(self) -> None:
        """Waits for the launcher's sockets, and serves them."""
        asyncio.get_running_loop().add_reader(self._channel, self._receive)

    def close(self) -> None:
        """Ends all connections; ``closed`` waits for that."""
        self._drop_channel()
        for each in self._serving:
            each.cancel()

    async def closed(self) -> None:
        self.close()
        if self._serving:
            await asyncio.wait(self._serving)

    def _receive(self) -> None:
        _, fds, _, _ = socket.recv_fds(self._channel, 1, len(self._served), socket.MSG_CMSG_CLOEXEC)
        self._drop_channel()
        for fd, (port, serve) in zip(fds, self._served.items(), strict=False):
            listener = socket.socket(fileno=fd)
            listener.setblocking(False)
            serving = serve(listener, self._report)
            self._serving.append(asyncio.get_running_loop().create_task(serving, name=f"port {port} of a command"))

    def _drop_channel(self) -> None:
        if self._channel.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._channel)
            self._channel.close()


def python_with(script: str, mounts: Iterable[BindMount]) -> list[str]:
    """Returns the arguments that run a script of Python in a sandbox. Raises Misconfigured if it has no Python."""
    if python := program("python3", mounts) or _own_interpreter():
        return [python, "-I", "-S", "-c", script]
    raise Misconfigured(
        "commands that may reach hosts or services need python3 in the sandbox; install the system's package"
    )


def _own_interpreter() -> str | None:
    """Returns the path of this process's interpreter if it belongs to the system, which every sandbox shows."""
    path = Path(sys.executable).resolve()
    return str(path) if is_below(path, SYSTEM) and os.access(path, os.X_OK) else None
