"""The network of commands that may reach hosts: an HTTP proxy on the sandbox's own loopback, served from outside.

No route leads out of a sandbox. Its first program opens the socket on which the proxy listens, hands the descriptor to
the worker and becomes the command. The worker accepts the connections, so the sandbox contains neither a process nor a
file of the proxy, and a command that ignores the proxy reaches nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from ...shared.errors import Misconfigured
from .environment import SYSTEM, BindMount, is_below, program

PORT = 61128
_PROXIED = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
VARIABLES = {
    **dict.fromkeys(_PROXIED, f"http://127.0.0.1:{PORT}"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
    "NODE_USE_ENV_PROXY": "1",
}
"""The variables by which programs find the proxy."""
TRUSTED = "/etc/deputize-authorities.pem"
"""Where the sandbox has what commands trust, if that is more than the system's authorities."""
_TRUSTING = {
    **dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO"), TRUSTED),
    **dict.fromkeys(("NODE_EXTRA_CA_CERTS", "npm_config_cafile", "CARGO_HTTP_CAINFO"), TRUSTED),
    **dict.fromkeys(("BUNDLE_SSL_CA_CERT", "AWS_CA_BUNDLE", "DENO_CERT"), TRUSTED),
}
"""The variables by which programs find it."""
_LAUNCHER = f"""
import os, signal, socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
listener = socket.create_server(("127.0.0.1", {PORT}), backlog=64)
socket.send_fds(channel, [b"."], [listener.fileno()])
channel.close()
listener.close()
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.stderr.write(f"{{sys.argv[2]}}: {{error.strerror}}\\n")
    sys.exit(127 if isinstance(error, FileNotFoundError) else 126)
"""
"""The signals are those that Python ignores, and an ignored one would stay so for the command."""
Report = Callable[[str], None]


class Egress(Protocol):
    """Decides which hosts commands reach."""

    @property
    def trusted(self) -> bytes:
        """The certificate authorities that commands have to trust, in PEM; empty for those of the system."""
        ...

    async def serve(self, listener: socket.socket, report: Report) -> None:
        """Serves one command's proxy on ``listener``, which it owns, until it is cancelled.

        ``report`` is called with a sentence for each host that it refuses.
        """
        ...


def variables(trusted: bytes) -> dict[str, str]:
    """Returns the variables of commands that may reach hosts."""
    return {**VARIABLES, **_TRUSTING} if trusted else VARIABLES


class CommandProxy:
    """The proxy of one command."""

    def __init__(self, egress: Egress, report: Report, fds: list[int]) -> None:
        """Adds the descriptor for the launcher to ``fds``."""
        self._egress = egress
        self._report = report
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        self._launcher_fd = theirs.detach()
        fds.append(self._launcher_fd)
        self._serving: asyncio.Task[None] | None = None

    def launcher(self, mounts: Iterable[BindMount]) -> list[str]:
        """Returns what comes before a command's arguments. Raises Misconfigured if the sandbox has no Python."""
        if python := program("python3", mounts) or _own_interpreter():
            return [python, "-I", "-S", "-c", _LAUNCHER, str(self._launcher_fd)]
        raise Misconfigured("commands that may reach hosts need python3 in the sandbox; install the system's package")

    def begin(self) -> None:
        """Waits for the launcher's socket, and serves it."""
        asyncio.get_running_loop().add_reader(self._channel, self._receive)

    def close(self) -> None:
        """Ends all connections; ``closed`` waits for that."""
        self._drop_channel()
        if self._serving:
            self._serving.cancel()

    async def closed(self) -> None:
        self.close()
        if self._serving:
            await asyncio.wait([self._serving])

    def _receive(self) -> None:
        _, fds, _, _ = socket.recv_fds(self._channel, 1, 1, socket.MSG_CMSG_CLOEXEC)
        self._drop_channel()
        if fds:
            listener = socket.socket(fileno=fds[0])
            listener.setblocking(False)
            serving = self._egress.serve(listener, self._report)
            self._serving = asyncio.get_running_loop().create_task(serving, name="a command's proxy")

    def _drop_channel(self) -> None:
        if self._channel.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._channel)
            self._channel.close()


def _own_interpreter() -> str | None:
    """Returns the path of this process's interpreter if it belongs to the system, which every sandbox shows."""
    path = Path(sys.executable).resolve()
    return str(path) if is_below(path, SYSTEM) and os.access(path, os.X_OK) else None
