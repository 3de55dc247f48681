"""What no command may find, put where a worker's secrets and other runs lie; and servers that none may reach."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from .environment import owner

_BACKLOG = 64
_METADATA = ("169.254.169.254", 80)
ELSEWHERE = [
    ["the metadata service", socket.AF_INET, socket.SOCK_STREAM, _METADATA],
    ["the metadata service by UDP", socket.AF_INET, socket.SOCK_DGRAM, _METADATA],
]
"""Name, family, kind and address of what lies outside of this machine; nothing has to listen there."""


class Canaries:
    """A private file, a neighbour's file, and servers on this machine, as long as the block runs.

    ``root`` is the directory of the workspaces, or of what else is private to the worker. The process that tries the
    protections has a canary in its environment, too, from the process that started it.
    """

    def __init__(self, root: Path | None) -> None:
        self._opened = ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="selftest-", dir=root))
        self._opened.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.name = f"canary-{secrets.token_hex(8)}"
        """Of both files: a command that finds it by walking may see it under any path."""
        self.private, self.neighbour = self.folder / "private" / self.name, self.folder / "other/files" / self.name
        self.values = {path: f"deputize-canary-{secrets.token_hex(8)}" for path in (self.private, self.neighbour)}
        for path, text in self.values.items():
            path.parent.mkdir(mode=0o700, parents=True)
            path.write_text(text)
            path.chmod(0o600)
        if ids := owner():  # as the files of every run are: only mounts keep them apart
            for path in (self.neighbour.parent, self.neighbour):
                os.chown(path, *ids)
        self.servers = self._listening()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def paths(self) -> list[Path]:
        """What no command may open."""
        own = Path("/proc", str(os.getpid()), "environ")
        return [self.private, self.neighbour, self.folder, own, Path("/etc/shadow"), Path("/run/secrets")]

    def workspace(self, name: str) -> Path:
        """Returns a directory that commands may write, beside the neighbour's."""
        path = self.folder / name / "files"
        path.mkdir(parents=True, exist_ok=True)
        if ids := owner():
            os.chown(path, *ids)
        return path

    def _listening(self) -> list[list[Any]]:
        """Returns name, family, kind and address of each server."""
        abstract = f"\0deputize-{secrets.token_hex(8)}"
        wanted: list[tuple[str, int, Any]] = [
            ("a server on 127.0.0.1", socket.AF_INET, ("127.0.0.1", 0)),
            ("a server on ::1", socket.AF_INET6, ("::1", 0)),
            ("an abstract socket", socket.AF_UNIX, abstract),
            ("a socket in a private folder", socket.AF_UNIX, str(self.private.with_name("socket"))),
        ]
        found: list[list[Any]] = []
        for name, family, address in wanted:
            server = self._opened.enter_context(socket.socket(family))
            try:
                server.bind(address)
            except OSError:  # a machine without IPv6, or a path longer than an address may be
                continue
            server.listen(_BACKLOG)
            bound = server.getsockname()
            own = os.fsdecode(bound) if isinstance(bound, bytes) else bound
            found.append([name, family, socket.SOCK_STREAM, own])
        return found
