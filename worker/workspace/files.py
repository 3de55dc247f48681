"""The files of one workspace, opened only with ``openat2``, so that no path and no link leads out of it."""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from ...shared.errors import ErrorType, ToolError
from ...shared.libc import beneath, closing_fd, is_on_local_disk, require_openat2
from ..contracts import FileAccess, FileEntry, Stat
from ..sandbox.full_disk import FullDisk
from ..threads import take_memory
from .file_entries import (
    PRIVATE_DIR,
    entries_of,
    lstat,
    not_a_file,
    not_allowed,
    path_of_fd,
    read_all,
    stat_of,
    temporary_name,
    too_large,
    tool_error,
)

_MAX_LINKS = 40
"""Links in one path, as many as the kernel follows."""
MAX_READ = 64 * 1024 * 1024
_PLAIN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_PERMISSIONS = 0o777
"""Mode bits that a replaced file keeps. Set-uid and set-gid bits were set for the old content only."""


class Files:
    """The files below ``root``, which commands see as ``mount``. New files get ``owner`` (uid, gid) if we are root.

    Paths are relative to the workspace, or absolute below ``mount`` or ``root``. Links to targets inside are followed;
    every method raises ToolError(PATH_NOT_ALLOWED) for a path that leads elsewhere, through links or ``..``.
    """

    def __init__(self, root: Path, mount: str = "/workspace", owner: tuple[int, int] | None = None) -> None:
        require_openat2()
        self.root = root.absolute()
        self.mount = mount.rstrip("/")
        self._owner = owner if os.geteuid() == 0 else None
        self._disk = FullDisk(self.root)
        self._fd = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.is_local = is_on_local_disk(self._fd)
        self._names = (self.mount, str(self.root), os.path.realpath(self.root))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def relative(self, path: str) -> str:
        """Returns the path relative to the workspace, without ``.`` and double slashes. No file is opened."""
        if not path or "\0" in path:
            raise not_allowed(path, "it is empty" if not path else "it contains a NUL character", self.mount)
        inner = path if not path.startswith("/") else self._strip_root(path)
        parts = [part for part in inner.split("/") if part not in ("", ".")]
        depth = 0
        for part in parts:
            depth += -1 if part == ".." else 1
            if depth < 0:
                raise not_allowed(path, "it leads out of the workspace", self.mount)
        return ("/".join(parts) or ".") + ("/" if parts and path.endswith("/") else "")

    def full(self, path: str) -> str:
        """Returns the absolute path as commands see it, below ``mount``."""
        inner = self.relative(path).rstrip("/")
        return self.mount if inner == "." else f"{self.mount}/{inner}"

    def contains(self, path: str) -> bool:
        """Whether the path is in the workspace, with links resolved; it need not exist."""
        try:
            self.stat(path)
        except ToolError as error:
            return error.type is not ErrorType.PATH_NOT_ALLOWED
        return True

    def real(self, path: str) -> str:
        """Returns the absolute path with links resolved; the file need not exist."""
        inner = self.relative(path).rstrip("/")
        missing: list[str] = []
        while inner not in ("", "."):
            try:
                fd = self._beneath(inner, os.O_PATH)
                if place := path_of_fd(fd):
                    return "/".join([place, *reversed(missing)])
            except FileNotFoundError:
                inner, _, name = inner.rpartition("/")
                missing.append(name)
            except OSError as error:
                raise tool_error(path, error, self.mount) from None
        return "/".join([self._names[-1], *reversed(missing)])

    def open_fd(self, path: str, flags: int = _PLAIN) -> int:
        """Opens the path and returns its descriptor, which the caller closes. Raises ToolError."""
        inner = self.relative(path)
        with self._tool_errors(path):
            return self._disk.with_room(self._beneath, inner, flags)

    def read(self, path: str, max_bytes: int = MAX_READ) -> bytes:
        """Reads a file. Raises ToolError: FILE_TOO_LARGE above ``max_bytes``, NOT_A_FILE unless it is regular."""
        with closing_fd(self.open_fd(path)) as fd:
            found = os.fstat(fd)
            if not modes.S_ISREG(found.st_mode):
                raise not_a_file(path, found.st_mode)
            if found.st_size > max_bytes:
                raise too_large(path, found.st_size, max_bytes)
            take_memory(found.st_size)
            with self._tool_errors(path):
                data = read_all(fd, max_bytes)
        if len(data) > max_bytes:
            raise too_large(path, len(data), max_bytes)
        return data

    def head(self, path: str, size: int) -> bytes:
        """Reads the first bytes of a regular file. Raises ToolError like ``read``."""
        with closing_fd(self.open_fd(path)) as fd, self._tool_errors(path):
            if not modes.S_ISREG(mode := os.fstat(fd).st_mode):
                raise not_a_file(path, mode)
            return read_all(fd, size - 1)

    def stat(self, path: str, *, follow: bool = True) -> Stat | None:
        """Returns the status of the path, or None if it does not exist; of a link itself if ``follow`` is False."""
        try:
            with closing_fd(self.open_fd(path, os.O_PATH | (0 if follow else os.O_NOFOLLOW))) as fd:
                return stat_of(os.fstat(fd))
        except ToolError as error:
            if error.type in (ErrorType.FILE_NOT_FOUND, ErrorType.NOT_A_DIRECTORY):
                return None
            raise

    def write(self, path: str, data: bytes, *, keep_mode: bool = True) -> bool:
        """Replaces or creates the file atomically, with its parents; returns whether it was created.

        A link's target is written. An existing file keeps its mode, or gets 0644 if ``keep_mode`` is False.
        """
        inner = self.relative(path)
        with self._tool_errors(path):
            head, _, name = inner.rpartition("/")
            if name in ("", ".", ".."):
                raise not_a_file(path, modes.S_IFDIR)
            old = self._disk.with_room(self._place, head or ".", name, data, keep_mode)
        if old is None or modes.S_ISREG(old.st_mode):
            return old is None
        if not modes.S_ISLNK(old.st_mode):
            raise not_a_file(path, old.st_mode)
        with self._tool_errors(path):
            target = self._without_links(inner) if self.stat(inner) is None else self._target(path, inner)
        return self.write(target, data, keep_mode=keep_mode)

    def scan(self, path: str = ".") -> list[FileEntry]:
        """Returns the entries of a directory, sorted by name. Raises ToolError(NOT_A_DIRECTORY)."""
        inner = self.relative(path).rstrip("/")
        with closing_fd(self.open_fd(path, _FOLDER)) as fd, self._tool_errors(path), os.scandir(fd) as found:
            return sorted(entries_of("" if inner == "." else inner + "/", found), key=lambda entry: entry.path)

    def walk(self, path: str = ".") -> Iterator[FileEntry]:
        """Yields all entries below a directory, parents first; links are not followed, missing files are skipped."""
        waiting = self.scan(path)[::-1]
        while waiting:
            entry = waiting.pop()
            yield entry
            if entry.stat.kind == "directory":
                with suppress(ToolError):
                    waiting += self.scan(entry.path)[::-1]

    def private_path(self, path: str) -> str:
        """Returns the path of a file in the worker's own directory, which is created and ignored by git."""
        self.write(f"{PRIVATE_DIR}/.gitignore", b"*\n")
        return f"{PRIVATE_DIR}/{path}"

    def write_private(self, path: str, data: bytes) -> str:
        """Writes a file in the worker's own directory; returns its path in the workspace."""
        self.write(full := self.private_path(path), data)
        return full

    def _strip_root(self, path: str) -> str:
        plain = "/" + path.lstrip("/")
        for name in self._names:
            if plain == name or plain.startswith(name + "/"):
                return plain[len(name) :].lstrip("/") or "."
        raise not_allowed(path, "it is outside the workspace", self.mount)

    def _beneath(self, inner: str, flags: int) -> int:
        """Opens a path; absolute links to a place below the workspace lead there, as they do for commands."""
        try:
            return beneath(self._fd, inner, flags)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        return beneath(self._fd, self._without_links(inner), flags)

    def _without_links(self, inner: str) -> str:
        """Returns the path with its links resolved, which must lead to a place below the workspace.

        It is opened as any other one, so nothing depends on what becomes of the links meanwhile.

        Raises OSError: EXDEV for links that lead elsewhere, ELOOP for too many.
        """
        waiting, done, links = inner.split("/")[::-1], list[str](), 0
        while waiting:
            name = waiting.pop()
            target = self._link_target("/".join([*done, name]))
            links += bool(target)
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target:
                below = self._below(target)
                done = done if below is None else []
                waiting += (target if below is None else below).split("/")[::-1]
            elif name == "..":
                if not done:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                done.pop()
            elif name not in ("", "."):
                done.append(name)
        return "/".join(done) or "."

    def _below(self, target: str) -> str | None:
        """Returns an absolute target of a link as a path below the workspace; None for a relative one."""
        if not target.startswith("/"):
            return None
        for top in self._names:
            if f"{target}/".startswith(f"{top}/"):
                return target[len(top) :]
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    def _link_target(self, inner: str) -> str:
        """Returns the target of a link; "" for all else."""
        with suppress(OSError), closing_fd(beneath(self._fd, inner, os.O_PATH | os.O_NOFOLLOW)) as fd:
            if modes.S_ISLNK(os.fstat(fd).st_mode):
                return os.readlink("", dir_fd=fd)
        return ""

    def _make_folders(self, inner: str) -> int:
        missing: list[str] = []
        while True:
            try:
                folder = self._beneath(inner, os.O_PATH | os.O_DIRECTORY)
                break
            except FileNotFoundError:
                head, _, name = inner.rstrip("/").rpartition("/")
                missing.append(name)
                inner = head or "."
        for name in reversed(missing):
            with closing_fd(folder), suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=folder)
                if self._owner:
                    os.chown(name, *self._owner, dir_fd=folder, follow_symlinks=False)
            inner = f"{inner}/{name}"
            folder = self._beneath(inner, os.O_PATH | os.O_DIRECTORY)
        return folder

    def _place(self, parent: str, name: str, data: bytes, keep_mode: bool) -> os.stat_result | None:
        """Returns what was at the path, in place of which the file is if that was none or a file."""
        with closing_fd(self._make_folders(parent)) as folder:
            old = lstat(folder, name)
            if old and modes.S_ISREG(old.st_mode) and old.st_nlink > 1 and keep_mode:
                _overwrite(folder, name, data)  # its other names are to stay names of the same file
            elif old is None or modes.S_ISREG(old.st_mode):
                self._replace(folder, name, data, old.st_mode & _PERMISSIONS if old and keep_mode else 0o644)
            return old

    def _replace(self, folder: int, name: str, data: bytes, mode: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with temporary_name() as temporary:
            try:
                with closing_fd(os.open(temporary, flags, 0o600, dir_fd=folder)) as fd:
                    _write_all(fd, data)
                    if self._owner:
                        os.fchown(fd, *self._owner)
                    os.fchmod(fd, mode)
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    def _target(self, path: str, inner: str) -> str:
        """Returns the target of a link as a path relative to the workspace, with all links resolved."""
        with self._tool_errors(path), closing_fd(self._beneath(inner, os.O_PATH)) as fd:
            if not modes.S_ISREG(mode := os.fstat(fd).st_mode):
                raise not_a_file(path, mode)
            real, top = (str(Path(f"/proc/self/fd/{which}").readlink()) for which in (fd, self._fd))
        if not real.startswith(top + "/"):
            raise not_allowed(path, "its target moved", self.mount)
        return real[len(top) + 1 :]

    @contextmanager
    def _tool_errors(self, path: str) -> Generator[None]:
        """Converts errors of the system to ToolErrors that contain the path as the caller wrote it."""
        try:
            yield
        except (OSError, UnicodeEncodeError) as error:
            raise tool_error(path, error, self.mount) from None


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def _overwrite(folder: int, name: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # it may be a pipe by now
    with closing_fd(os.open(name, flags, dir_fd=folder)) as fd:
        _write_all(fd, data)
        os.ftruncate(fd, len(data))


class ShownFiles(Files):
    """The files below one directory, at its own path. Paths are absolute, or relative to the directory.

    ``reader`` is the user (uid, gid) of commands where the worker is root: what commands cannot open is refused.
    """

    def __init__(self, root: Path, reader: tuple[int, int] | None = None) -> None:
        super().__init__(root, mount=str(root))
        self._reader = reader

    def open_fd(self, path: str, flags: int = _PLAIN) -> int:
        fd = super().open_fd(path, flags)
        place = Path(f"/proc/self/fd/{fd}").readlink()
        if self._reader and not _may_open(self.root.resolve(), place, self._reader):
            os.close(fd)
            raise ToolError(ErrorType.PERMISSION_DENIED, f"Permission denied: {path}")
        return fd

    def write(self, path: str, data: bytes, *, keep_mode: bool = True) -> bool:
        raise ToolError(ErrorType.PATH_NOT_ALLOWED, f"Path not allowed: {path!r}: it can only be read.")


def named(files: FileAccess, path: str) -> str:
    """Returns a path of these files as answers name it: absolute where it is not in the workspace."""
    return files.full(path) if isinstance(files, ShownFiles) else path


def _may_open(root: Path, place: Path, reader: tuple[int, int]) -> bool:
    """Returns whether the reader may read the file, or list the directory, and enter all those that lead there."""
    try:
        found = place.lstat()
        folders = [folder.lstat() for folder in place.parents if folder.is_relative_to(root)]
    except OSError:  # it was moved or removed meanwhile
        return False
    readable = _is_open_to(found, 0o5 if modes.S_ISDIR(found.st_mode) else 0o4, reader)
    return place.is_relative_to(root) and readable and all(_is_open_to(folder, 0o1, reader) for folder in folders)


def _is_open_to(found: os.stat_result, wanted: int, reader: tuple[int, int]) -> bool:
    shift = 6 if found.st_uid == reader[0] else 3 if found.st_gid == reader[1] else 0
    return found.st_mode >> shift & wanted == wanted
