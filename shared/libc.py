"""The C library, loaded once per process: functions that Python's own modules lack, such as ``openat2``."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

from .errors import Misconfigured

LIBC = ctypes.CDLL(None, use_errno=True)
_KEEP_SIZE = 1


def allocate(fd: int, offset: int, size: int) -> None:
    """Reserves space on the disk for a part of a file, which does not become longer. Raises OSError."""
    if LIBC.fallocate(fd, _KEEP_SIZE, ctypes.c_long(offset), ctypes.c_long(size)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_OPENAT2 = 437  # the same on every architecture
_NO_MAGICLINKS = 0x02
_NO_SYMLINKS = 0x04
_BENEATH = 0x08
_TRIES = 128
_LONGEST = 4000
"""Bytes of a path per system call, below the kernel's limit."""
LIBC.syscall.restype = ctypes.c_long


_LOCAL_DISKS = {
    0xEF53,  # ext2, ext3, ext4
    0x01021994,  # tmpfs
    0x58465342,  # xfs
    0x9123683E,  # btrfs
    0x794C7630,  # overlay
    0xF2F52010,  # f2fs
    0x2FC12FC1,  # zfs
}


def is_on_local_disk(fd: int) -> bool:
    """Whether the file is on a known file system of this machine; no network and no other process answers for it."""
    found = (ctypes.c_long * 32)()  # a struct statfs, which begins with the type
    return LIBC.fstatfs(ctypes.c_int(fd), ctypes.byref(found)) == 0 and found[0] in _LOCAL_DISKS


@contextmanager
def closing_fd(fd: int) -> Generator[int]:
    """Yields the descriptor, and closes it with the block."""
    try:
        yield fd
    finally:
        os.close(fd)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def beneath(folder: int, path: str, flags: int, *, links: bool = True) -> int:
    """Opens ``path`` below the directory ``folder``, following links that stay below it if ``links`` is true.

    Files created by O_CREAT are readable by their owner only. A path longer than the kernel accepts is opened in
    several steps. Raises OSError: EXDEV if the path leads out.
    """
    name = os.fsencode(path)
    if b"\0" in name:  # C would cut the name here and open another file
        raise OSError(errno.EINVAL, "a NUL character in a path")
    resolve = _BENEATH | _NO_MAGICLINKS | (0 if links else _NO_SYMLINKS)
    opened: int | None = None
    try:
        while len(name) > _LONGEST and (end := name.rfind(b"/", 1, _LONGEST)) > 0:
            deeper = _opened(folder if opened is None else opened, name[:end], os.O_PATH | os.O_DIRECTORY, resolve)
            if opened is not None:
                os.close(opened)
            opened, name = deeper, name[end:].lstrip(b"/") or b"."
        return _opened(folder if opened is None else opened, name, flags, resolve)
    finally:
        if opened is not None:
            os.close(opened)


def _opened(folder: int, name: bytes, flags: int, resolve: int) -> int:
    how = _How(flags | os.O_CLOEXEC, 0o600 if flags & os.O_CREAT else 0, resolve)
    tries = 1
    size = ctypes.c_size_t(ctypes.sizeof(how))
    arguments = (ctypes.c_long(_OPENAT2), ctypes.c_int(folder), ctypes.c_char_p(name), ctypes.byref(how), size)
    while (fd := LIBC.syscall(*arguments)) < 0:
        number = ctypes.get_errno()
        # A concurrent rename on the machine makes the kernel return EAGAIN for `..`.
        if number not in (errno.EAGAIN, errno.EINTR):
            raise OSError(number, os.strerror(number))
        if tries == _TRIES:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        tries += 1
    return fd


@cache
def require_openat2() -> None:
    """Raises Misconfigured if the kernel or a seccomp profile does not allow ``openat2``."""
    try:
        with closing_fd(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
            os.close(beneath(root, ".", os.O_PATH))
    except OSError as error:
        raise Misconfigured(
            f"openat2 does not work here ({error.strerror}), and without it files cannot be kept inside a workspace. "
            "Linux 5.6 or newer is needed; in a container, a seccomp profile that allows openat2."
        ) from None
