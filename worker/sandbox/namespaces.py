"""What is mounted in a sandbox's mount namespaces.

For workers that run as root: a mount namespace in which an unprivileged uid reaches paths below /root. Bubblewrap must
not run as root (the kernel lets the real uid 0 write /proc/sys from any namespace), yet an unprivileged uid cannot pass
through /root to a workspace, an interpreter or a wheel there. So root mounts these at reachable paths of a namespace
without processes; it ends when its descriptor is closed, at the latest with the worker.

For every sandbox: its writable mounts, as the kernel lists them, are compared with those that it should have.
Bubblewrap makes a mount read-only in a second step, and looks its path up again for that. A background command of the
same run can exchange a link in the workspace between the two, and the mount stays writable.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from ...shared.errors import Misconfigured
from ...shared.libc import LIBC

_NEW_MOUNTS = 0x00020000
_BIND, _RECURSIVE, _SLAVE = 0x1000, 0x4000, 0x80000
_NOSUID, _NODEV = 0x2, 0x4
_DEVICES = "/dev/"


class MountNamespace:
    """A namespace with each of ``sources`` mounted at ``path(name)``. Raises Misconfigured if root may not mount."""

    def __init__(self, sources: Mapping[str, Path]) -> None:
        self._sources = sources
        self._error: OSError | None = None
        self.fd = -1
        # Mount namespaces belong to threads: a thread creates it and only the descriptor remains.
        thread = threading.Thread(target=self._build, name="mount-namespace")
        thread.start()
        thread.join()
        if self._error:
            raise Misconfigured(
                f"root may not mount here ({self._error.strerror}), so commands cannot be kept from running as root; "
                "run the worker as an ordinary user"
            )

    @staticmethod
    def path(name: str) -> str:
        return f"/tmp/{name}"  # noqa: S108 - of the namespace, not of the host

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _build(self) -> None:
        opened: dict[str, int] = {}
        try:
            _check(LIBC.unshare(_NEW_MOUNTS))
            os.umask(0o022)  # this thread's alone from here on; the sandbox's user goes through what is made
            _mount(None, "/", None, _RECURSIVE | _SLAVE)
            for name, source in self._sources.items():
                opened[name] = os.open(source, os.O_PATH | os.O_CLOEXEC)
            _mount("tmpfs", self.path(""), "tmpfs", _NOSUID | _NODEV, "mode=0755,size=1m")
            for name, fd in opened.items():
                target = Path(self.path(name))
                target.parent.mkdir(exist_ok=True)
                target.mkdir() if Path(f"/proc/self/fd/{fd}").is_dir() else target.touch()
                _mount(f"/proc/thread-self/fd/{fd}", str(target), None, _BIND | _RECURSIVE)
            self.fd = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self._error = error
        finally:
            for fd in opened.values():
                os.close(fd)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _check(LIBC.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def writable_mount_refusal(pid: int, expected: Collection[str]) -> str | None:
    """Returns why the sandbox of this process must not be used, or None.

    Args:
        pid: A process inside.
        expected: The paths of its writable mounts besides those of devices.
    """
    try:
        lines = Path(f"/proc/{pid}/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
    except OSError as error:
        return f"its mounts cannot be read: {error.strerror}"
    fields = [line.split(" ") for line in lines]
    writable = Counter(each[4] for each in fields if "ro" not in each[5].split(","))
    known = {_escaped(path) for path in expected}
    for path, number in writable.items():
        # A second mount at the same path covers the one that is expected there.
        if number > 1 or not (path in known or path.startswith(_DEVICES)):
            return f"{path} is writable and should not be; files of the workspace were exchanged meanwhile. Try again"
    return None


def _escaped(path: str) -> str:
    """Returns the path as the kernel writes it in its list."""
    return "".join(f"\\{ord(each):03o}" if each in " \t\n\\#" else each for each in path)
