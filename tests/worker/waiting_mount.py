"""A file system in user space that can be made to wait, as one on the network does whose server is gone."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import pytest

from deputize.shared.libc import LIBC

_LOOKUP, _GETATTR, _STATFS, _INIT, _OPENDIR = 1, 3, 17, 26, 27
_FORCE_DETACH = 1 | 2
_MOST = 1 << 17
_SECONDS = 5.0
"""A loop that is held up goes on then, so that the test fails."""
_EIO = 5


@dataclass
class WaitingMount:
    """The server of an empty directory. While ``go`` is not set, who looks a name up waits."""

    fd: int
    asked: Event = field(default_factory=Event)
    go: Event = field(default_factory=Event)

    def serve(self) -> None:
        with suppress(OSError):  # it was unmounted
            while True:
                _, kind, unique = struct.unpack_from("IIQ", os.read(self.fd, _MOST))
                if kind == _LOOKUP:
                    self.asked.set()
                    if not self.go.wait(_SECONDS):
                        self.go.set()
                answer = _ANSWERS.get(kind, b"")
                head = struct.pack("IiQ", 16 + len(answer), 0 if answer else -_EIO, unique)
                os.write(self.fd, head + answer)


_ANSWERS = {
    _INIT: struct.pack("IIIIHHIIHHI7I", 7, 31, 1 << 16, 0, 16, 12, 1 << 16, 1, 0, 0, 0, *[0] * 7),
    _GETATTR: struct.pack("QII6Q10I", 1, 0, 0, 1, *[0] * 5, 0, 0, 0, 0o40777, 2, *[0] * 5),
    _STATFS: bytes(80),
    _OPENDIR: bytes(16),
}
"""Of the newest version of the protocol that has them all: the mount, an empty directory, and an empty disk."""


@contextmanager
def waiting_mount(path: Path) -> Generator[WaitingMount]:
    """Mounts it at the directory; skips the test where that is not allowed."""
    try:
        fd = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"there are no file systems in user space: {error}")
    options = f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
    if LIBC.mount(b"waiting", os.fsencode(path), b"fuse", 0, options):
        os.close(fd)
        pytest.skip(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
    mount = WaitingMount(fd)
    mount.go.set()
    server = Thread(target=mount.serve, daemon=True)
    server.start()
    try:
        yield mount
    finally:
        mount.go.set()
        LIBC.umount2(os.fsencode(path), _FORCE_DETACH)
        server.join(30)
        os.close(fd)
