"""Directory entries and file status, and the names in a workspace that are the worker's own."""

from __future__ import annotations

import errno
import os
import secrets
import stat as modes
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...shared.errors import ErrorType, ToolError
from ...shared.workspaces import PRIVATE_DIR
from ..contracts import EntryKind, FileEntry, Stat
from ..threads import give_way

TEMPORARY = ".deputize-writing-"
"""The prefix of files that are being written, before they are renamed."""
_being_written: set[str] = set()


def is_private(path: str) -> bool:
    """Whether a path relative to the workspace is the worker's own directory or inside it."""
    return path == PRIVATE_DIR or path.startswith(PRIVATE_DIR + "/")


@contextmanager
def temporary_name() -> Generator[str]:
    """Yields an unused name; inside the block ``is_being_written`` is true for it, so that no listing includes it."""
    name = TEMPORARY + secrets.token_hex(8)
    _being_written.add(name)
    try:
        yield name
    finally:
        _being_written.discard(name)


def is_being_written(name: str) -> bool:
    """Whether this process is writing a file of that name now. Other files may have such a name, too."""
    return name in _being_written


def read_all(fd: int, max_bytes: int) -> bytes:
    """Reads to the end of the file, at most one byte more than allowed, so that a file that grows is detected."""
    parts: list[bytes] = []
    left = max_bytes + 1
    while left and (part := os.read(fd, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def entries_of(prefix: str, found: Iterator[os.DirEntry[str]]) -> Iterator[FileEntry]:
    """Yields the entries of a listing whose paths start with ``prefix``; files that are gone are skipped."""
    for entry in found:
        give_way()
        with suppress(FileNotFoundError):
            yield FileEntry(prefix + entry.name, stat_of(entry.stat(follow_symlinks=False)))


def stat_of(found: os.stat_result) -> Stat:
    """Converts the system's file status."""
    kinds: dict[int, EntryKind] = {modes.S_IFREG: "file", modes.S_IFDIR: "directory", modes.S_IFLNK: "symlink"}
    kind = kinds.get(modes.S_IFMT(found.st_mode), "other")
    return Stat(kind, found.st_size, found.st_mtime_ns, modes.S_IMODE(found.st_mode))


def lstat(folder: int, name: str) -> os.stat_result | None:
    """Returns the status of a file without following links; None if it does not exist."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def path_of_fd(fd: int) -> str | None:
    """Returns the path of an open file, or None if another file has it now. Closes the descriptor."""
    try:
        place, opened = Path(f"/proc/self/fd/{fd}").readlink(), os.fstat(fd)
        there = place.lstat()
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            return None
        raise
    finally:
        os.close(fd)
    return str(place) if (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino) else None


def tool_error(path: str, error: OSError | UnicodeEncodeError, mount: str) -> ToolError:
    """Converts an error of the system about ``path`` to a ToolError; ``mount`` is the workspace's path."""
    number = error.errno if isinstance(error, OSError) else errno.EILSEQ
    match number:
        case errno.ENOENT:
            return ToolError(ErrorType.FILE_NOT_FOUND, f"File not found: {path}")
        case errno.EXDEV | errno.ELOOP:
            place = "the workspace" if mount == "/workspace" else mount
            why = f"it leads out of {place}" if number == errno.EXDEV else "it goes through a link loop"
            return not_allowed(path, why, mount)
        case errno.ENAMETOOLONG | errno.EILSEQ:
            return not_allowed(path, "no file can have this name", mount)
        case errno.ENOTDIR:
            return ToolError(ErrorType.NOT_A_DIRECTORY, f"Not a directory: a part of {path} is a file")
        case errno.EISDIR:
            return not_a_file(path, modes.S_IFDIR)
        case errno.ENXIO:
            return not_a_file(path, modes.S_IFIFO)
        case errno.EACCES | errno.EPERM:
            return ToolError(ErrorType.PERMISSION_DENIED, f"Permission denied: {path}")
        case _:
            return ToolError(ErrorType.EXECUTION_FAILED, f"{path}: {os.strerror(number or errno.EIO)}")


def not_allowed(path: str, why: str, mount: str) -> ToolError:
    """Returns the error for a path outside the workspace or an invalid one."""
    return ToolError(
        ErrorType.PATH_NOT_ALLOWED,
        f"Path not allowed: {path!r}: {why}. Use a path relative to the workspace, or one below {mount}.",
    )


def not_a_file(path: str, mode: int) -> ToolError:
    """Returns the error for a path that is not a regular file; ``mode`` is its ``st_mode``."""
    what = "a directory" if modes.S_ISDIR(mode) else "a device, pipe or socket"
    return ToolError(ErrorType.NOT_A_FILE, f"Not a file: {path} is {what}")


def too_large(path: str, size: int, allowed: int) -> ToolError:
    """Returns the error for a file that is too large to read; sizes are in bytes."""
    message = f"File too large: {path} has {size} bytes, at most {allowed} are read. Read a part of it."
    return ToolError(ErrorType.FILE_TOO_LARGE, message)
