"""The home of this machine's stack: a private directory, its locks, and the description of what runs in it."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import re
import secrets
import stat
import struct
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import IO

from ..shared.errors import Misconfigured

SUPERVISOR_LOCK = "supervisor.lock"
USERS_LOCK = "users.lock"
INFO = "stack.json"
KEPT = "token"
"""Holds the token of this home's stacks, so that a page and scripts keep it over a restart."""
OPENED = "open.html"
"""Leads a browser to the page, with its token (`deputize open`)."""
NO_ANSWER, NO_WRITES_TAKEN, REFUSED = "Redis does not answer", "Redis takes no writes", "Redis refused a command"
"""Starts of the detail of ``/readyz`` by Redis. Where it refuses, nothing starts: to wait hides the cause."""
OF_REDIS = (NO_ANSWER, NO_WRITES_TAKEN, REFUSED)
FULL = (errno.ENOSPC, errno.EDQUOT)
RESERVE_BYTES = 64 * 1024
"""Free bytes below which the disk counts as full."""
UNUSED_SECONDS = 1.0
UNUSED_TICK_SECONDS = 0.2
_TOKEN = re.compile(r"[\w-]{43}", re.ASCII)
_FLOCK = "hhqqi0q"
"""Linux: struct flock."""


@dataclass(frozen=True)
class StackInfo:
    """The description of a running stack in ``stack.json``, which only its user can read."""

    pid: int
    url: str
    token: str
    """Empty if the API requires none."""
    redis_url: str
    flower_url: str | None
    workers: int
    stays: bool = False
    """Whether it runs in the foreground, and not only while it has users."""
    settings: dict[str, str] = field(default_factory=dict[str, str])
    """A digest of each setting that its workers and its API use, by name."""


def prepare_home(home: Path) -> None:
    """Creates the directory, or makes an existing home private. Raises Misconfigured if it cannot be used."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = home.stat()
        if found.st_uid != os.geteuid() or found.st_mode & stat.S_ISVTX or not found.st_mode & 0o077:
            return
        # Only what is clearly a home of ours: the setting may name a directory that others need.
        names = {entry.name for entry in home.iterdir()}
        if not names or names & {SUPERVISOR_LOCK, USERS_LOCK}:
            home.chmod(0o700)
    except OSError as error:
        raise unusable(home, error) from None


def unusable(home: Path, error: OSError) -> Misconfigured:
    """Returns a file system error on this home as Misconfigured with a remedy."""
    if error.errno in FULL:
        return Misconfigured(no_space(home))
    what = f"{error.filename}: " if error.filename and str(error.filename) != str(home) else ""
    return Misconfigured(f"{home} cannot be used ({what}{error.strerror or error}); set DEPUTIZE_HOME")


def no_space(home: Path) -> str:
    return f"no space left at {home}; free some, or set DEPUTIZE_HOME to another place"


def is_full(home: Path) -> bool:
    """Returns whether the disk is full."""
    try:
        space = os.statvfs(home)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < RESERVE_BYTES


def open_private(path: Path, mode: str) -> IO[bytes]:
    """Opens a file for this user only. Its lock ends when it is closed; child processes do not inherit it."""
    return open(path, mode, opener=partial(os.open, mode=0o600))


def open_lock(home: Path) -> IO[bytes]:
    """Opens the supervisor's lock. Raises Misconfigured for a home that cannot be written."""
    try:
        return open_private(home / SUPERVISOR_LOCK, "ab")
    except OSError as error:
        raise unusable(home, error) from None


def try_lock(file: IO[bytes], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sign(lock_fd: int) -> None:
    """Makes the kernel report this process as the holder of a lock.

    The lock itself does not: the process that started this one took it. A PID file would need space on the disk.
    """
    with suppress(OSError):
        fcntl.lockf(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def holder(home: Path) -> int | None:
    """Returns the id of the process that signed the supervisor's lock, or None if it is not known."""
    asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with open_private(home / SUPERVISOR_LOCK, "rb") as lock:
            kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(lock, fcntl.F_GETLK, asked))
    except OSError:
        return None
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


def read_info(home: Path) -> StackInfo | None:
    """Returns the stack's description, or None if there is no complete one. Raises OSError if it cannot be read."""
    try:
        kept = json.loads((home / INFO).read_text("utf-8"))
        return StackInfo(**{each.name: kept[each.name] for each in fields(StackInfo) if each.name in kept})
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write_info(home: Path, info: StackInfo) -> None:
    """Writes the description; it contains the token."""
    _replace(home / INFO, json.dumps(asdict(info)).encode())


def kept_token(home: Path) -> str:
    """Returns the token of this home's stacks; where none is kept that only its user can read, a new one."""
    with suppress(OSError, ValueError), _opened_token(home) as file:
        found = os.fstat(file.fileno())
        is_private = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
        kept = file.read(100).decode("ascii").strip()
        if is_private and _TOKEN.fullmatch(kept):
            return kept
    return renewed_token(home)


def renewed_token(home: Path) -> str:
    """Makes a token for the stacks of this home that start from now on."""
    made = secrets.token_urlsafe(32)
    _replace(home / KEPT, made.encode() + b"\n")
    return made


def _opened_token(home: Path) -> IO[bytes]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(home / KEPT, flags), "rb")


def _replace(path: Path, data: bytes) -> None:
    """Writes a file atomically and readable only by its user."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    try:
        with open_private(new, "xb") as file:
            file.write(data)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


async def until_unused(users: IO[bytes]) -> None:
    """Returns when the stack has had no users for a moment; from then on blocks new users until this process ends."""
    free_since: float | None = None
    while True:
        if not try_lock(users, fcntl.LOCK_EX):
            free_since = None
        else:
            free_since = free_since or time.monotonic()
            if time.monotonic() - free_since > UNUSED_SECONDS:
                return
            fcntl.flock(users, fcntl.LOCK_UN)
        await asyncio.sleep(UNUSED_TICK_SECONDS)
