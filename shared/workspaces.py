"""Where the files of a delegation and uploaded archives are on disk: service and workers share the folder."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from .libc import closing_fd

BASE = "base"
"""The folder with a copy of the files from the run's start, without git's own."""
PRIVATE_DIR = ".deputize"
"""The worker's own directory inside a workspace."""
UPLOADS = "uploads"
"""The folder of uploaded archives, each named by its digest. The time of its last use is that of its last change."""
UPLOADS_OF = "uploads-of"
"""The folder that has one for each caller, with a link to each of its uploads."""
MAX_ENTRIES = 200_000
"""Files and folders of an archive, or of a commit."""
MAX_DEPTH = 100
"""Folders inside one another in them."""
MAX_PATH_BYTES = 4000
"""Of a path in an archive, and of what a link names."""
IS_PRIVATE = "is private to the service; give the directory with the files to work on"
UPLOAD_POINTER = "/workspace/upload"
"""Where a refusal points whose remedy is to send the archive."""


def is_in_one(real: Path, places: Iterable[Path]) -> bool:
    """Whether a real path is one of the places, or lies in one."""
    return any(real.is_relative_to(os.path.realpath(place)) for place in places)


def generation_path(folder: Path, name: str, number: int) -> Path:
    """Returns the path of a file or directory that each attempt, which has a number, has for itself."""
    return folder / (name if number == 1 else f"{name}.{number}")


def latest_generation(folder: Path) -> int | None:
    """Returns the number of the newest attempt whose files are complete, or None if there is no workspace."""
    if not generation_path(folder, "start.json", 1).exists():
        return None
    numbers = (int(path.name.rpartition(".")[2]) for path in folder.glob("start.json.*") if path.suffix[1:].isdigit())
    return max(numbers, default=1)


def upload_path(root: Path, upload: str) -> Path:
    """Returns the path of an uploaded archive."""
    return root / UPLOADS / upload.removeprefix("sha256:")


def upload_link(root: Path, owner: str, upload: str) -> Path:
    """Returns the path of the link to an upload that counts it among those of an owner; "" is for the main token."""
    return root / UPLOADS_OF / (owner or "@") / upload.removeprefix("sha256:")


def use_upload(root: Path, upload: str) -> os.stat_result | None:
    """Begins the time anew that an upload is kept. Returns its status, or None where it is not within reach.

    A janitor locks what it deletes, so that none is deleted that a caller was just answered for.
    """
    try:
        fd = os.open(upload_path(root, upload), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with closing_fd(fd):
        with suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_SH)
        os.utime(fd)
        found = os.fstat(fd)
        return found if found.st_nlink else None


def delete(folder: Path) -> None:
    """Deletes a tree of any depth, also if a command changed the modes of its directories. Raises OSError."""
    for _ in range(2):
        if subprocess.run(["rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return
        subprocess.run(["chmod", "-R", "u+rwX", "--", folder], check=False, stderr=subprocess.DEVNULL)
    try:
        shutil.rmtree(folder)  # for the reason
    except RecursionError:
        raise OSError(errno.ELOOP, "it is too deep to be removed", str(folder)) from None


def leads_out(path: str, target: str) -> bool:
    """Whether a link at a path in a workspace leads out of it, also once what it names exists, or cannot be made."""
    depth = path.count("/")
    for name in target.split("/"):
        depth += -1 if name == ".." else name not in ("", ".")
        if depth < 0:
            return True
    return not target or target.startswith("/") or "\0" in target or len(os.fsencode(target)) > MAX_PATH_BYTES
