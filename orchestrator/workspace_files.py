"""The files of delegations, read where their worker left them; a path or a link never leads out of the workspace."""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote_to_bytes

from ..shared.errors import Conflict, NotFound
from ..shared.libc import beneath, closing_fd
from ..shared.text import HALF_CHARACTER
from ..shared.wire import Timestamp, Wire
from ..shared.workspaces import BASE, PRIVATE_DIR, generation_path, latest_generation

MAX_LISTED = 10_000
CHUNK = 256 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_LEFT_OUT = (".git", PRIVATE_DIR)


class WorkspaceFile(Wire):
    """A file or link in the workspace of a delegation."""

    path: str
    """Bytes of a name that are not UTF-8 as backslash escapes."""
    raw_path: str | None = None
    """The path as its URL needs it, percent-encoded, where it is not UTF-8."""
    kind: Literal["file", "link"]
    """Its kind; a link is listed, but cannot be read."""
    size: int
    """In bytes."""
    executable: bool
    """Whether its owner may execute it."""
    modified_at: Timestamp
    """When its content last changed."""

    @property
    def name(self) -> str:
        """The path as this machine's file system takes it."""
        return self.path if self.raw_path is None else os.fsdecode(unquote_to_bytes(self.raw_path))


class FileList(Wire):
    items: list[WorkspaceFile]
    """The files, sorted by path."""
    truncated: bool
    """Whether there are more files than listed."""


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """An open file of a workspace. ``read`` closes it."""

    fd: int
    size: int

    def read(self) -> Generator[bytes]:
        """Yields the content up to the size it had when it was opened."""
        with closing_fd(self.fd):
            left = self.size
            while left and (chunk := os.read(self.fd, min(CHUNK, left))):
                left -= len(chunk)
                yield chunk


def list_files(root: Path, id: str, *, base: bool) -> FileList:
    """Returns the files of a delegation below the directory of all workspaces, by path, without git's own.

    Raises Conflict if they are not there.
    """
    with _workspace(root, id, base) as top:
        found = sorted(_walk(top), key=lambda file: file.path)
    return FileList(items=found[:MAX_LISTED], truncated=len(found) > MAX_LISTED)


def open_file(root: Path, id: str, path: str, *, base: bool) -> OpenedFile:
    """Opens a regular file. Raises Conflict if it is none, or the files are not there, and NotFound."""
    unknown = NotFound(f"delegation {id} has no file {path!r}; GET /v1/delegations/{id}/files lists them")
    if any(name in ("", ".", "..", *_LEFT_OUT) for name in path.split("/")):
        raise unknown
    with _workspace(root, id, base) as top:
        try:
            fd = beneath(top, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, links=False)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise Conflict(f"{path!r} is a link, or inside one; only files are read") from None
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ENAMETOOLONG):
                raise unknown from None
            raise Conflict(f"{path!r} cannot be read: {error.strerror}") from None
    found = os.fstat(fd)
    if not modes.S_ISREG(found.st_mode):
        os.close(fd)
        raise Conflict(f"{path!r} is not a regular file; GET /v1/delegations/{id}/files lists those that are")
    return OpenedFile(fd, found.st_size)


@contextmanager
def _workspace(root: Path, id: str, base: bool) -> Generator[int]:
    folder = root / id
    try:
        number = latest_generation(folder)
        if number is None:
            raise FileNotFoundError
        top = os.open(folder / BASE if base else generation_path(folder, "files", number), _FOLDER | os.O_CLOEXEC)
    except OSError:
        raise Conflict(
            f"the files of {id} are not within reach of this service. They are made when it starts and removed some "
            f"time after it ended; of workers elsewhere they are in DEPUTIZE_WORKSPACE_ROOT, which the service reads "
            f"where it is a shared volume (here: {root})"
        ) from None
    with closing_fd(top):
        yield top


def _walk(top: int) -> Iterator[WorkspaceFile]:
    waiting, count = [""], 0
    while waiting and count <= MAX_LISTED:
        folder = waiting.pop()
        try:
            fd = beneath(top, folder or ".", _FOLDER, links=False)
        except OSError:
            continue  # removed, replaced, or made unreadable by a command
        with closing_fd(fd), os.scandir(fd) as entries:
            for entry in entries:
                if entry.name in _LEFT_OUT:
                    continue
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                elif (file := _entry(path, entry)) is not None:
                    count += 1
                    yield file


def _entry(path: str, entry: os.DirEntry[str]) -> WorkspaceFile | None:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    if not (modes.S_ISREG(found.st_mode) or modes.S_ISLNK(found.st_mode)):
        return None
    raw = os.fsencode(path)
    return WorkspaceFile(
        path=raw.decode("utf-8", "backslashreplace"),
        raw_path=quote(raw) if HALF_CHARACTER.search(path) else None,
        kind="link" if modes.S_ISLNK(found.st_mode) else "file",
        size=found.st_size,
        executable=modes.S_ISREG(found.st_mode) and bool(found.st_mode & modes.S_IXUSR),
        modified_at=datetime.fromtimestamp(found.st_mtime, UTC),
    )
