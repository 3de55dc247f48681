"""Files of one workspace, reached only through ``openat2`` so that no path and no link leads out of it."""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from shared.errors import ErrorType, ToolError
from worker.linux.openat2 import beneath, require_openat2
from worker.threads import take_memory
from worker.workspace.file_entries import Entry, Stat, entries_of, lstat, place_of, read_all, stat_of, temporary_name
from worker.workspace.file_errors import explain, not_a_file, not_allowed, too_large

MAX_READ = 64 * 1024 * 1024
_PLAIN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_PERMISSIONS = 0o777
"""A set-uid or set-gid bit was given to the old content; nobody has given it to the new one."""


class Files:
    """The files below ``root``, which commands see as ``mount``.

    Every method takes a path relative to the workspace or an absolute one at or below ``mount`` or ``root``, and
    raises ToolError with PATH_NOT_ALLOWED for any other, whatever links and ``..`` it goes through. Links that
    stay inside are followed. ``owner`` (uid, gid) is who new files belong to, where we are root.
    """

    def __init__(self, root: Path, mount: str = "/workspace", owner: tuple[int, int] | None = None) -> None:
        require_openat2()
        self.root = root.absolute()
        self.mount = mount.rstrip("/")
        self._owner = owner if os.geteuid() == 0 else None
        self._fd = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
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
        """The path from the workspace's top, without ``.`` and doubled slashes. Nothing is opened or expanded."""
        if not path or "\0" in path:
            raise not_allowed(path, "it is empty" if not path else "it holds a NUL character", self.mount)
        inner = path if not path.startswith("/") else self._below_a_root(path)
        parts = [part for part in inner.split("/") if part not in ("", ".")]
        depth = 0
        for part in parts:
            depth += -1 if part == ".." else 1
            if depth < 0:
                raise not_allowed(path, "it leads out of the workspace", self.mount)
        return ("/".join(parts) or ".") + ("/" if parts and path.endswith("/") else "")

    def full(self, path: str) -> str:
        """The path as commands see it: absolute, below ``mount``."""
        inner = self.relative(path).rstrip("/")
        return self.mount if inner == "." else f"{self.mount}/{inner}"

    def contains(self, path: str) -> bool:
        """Whether the path lies in the workspace, links resolved; it need not exist."""
        try:
            self.stat(path)
        except ToolError as error:
            return error.type is not ErrorType.PATH_NOT_ALLOWED
        return True

    def real(self, path: str) -> str:
        """The one absolute path of what the path names, or would name once it is there, whatever links lead to it."""
        inner = self.relative(path).rstrip("/")
        missing: list[str] = []
        while inner not in ("", "."):
            try:
                fd = beneath(self._fd, inner, os.O_PATH)
                if place := place_of(fd):
                    return "/".join([place, *reversed(missing)])
            except FileNotFoundError:
                inner, _, name = inner.rpartition("/")
                missing.append(name)
            except OSError as error:
                raise explain(path, error, self.mount) from None
        return "/".join([self._names[-1], *reversed(missing)])

    def open_fd(self, path: str, flags: int = _PLAIN) -> int:
        """A descriptor for the path; the caller closes it. Raises ToolError."""
        inner = self.relative(path)
        with self._explained(path):
            return beneath(self._fd, inner, flags)

    def read(self, path: str, max_bytes: int = MAX_READ) -> bytes:
        """The whole file. Raises ToolError: FILE_TOO_LARGE over ``max_bytes``, NOT_A_FILE for all but plain files."""
        fd = self.open_fd(path)
        try:
            found = os.fstat(fd)
            if not modes.S_ISREG(found.st_mode):
                raise not_a_file(path, found.st_mode)
            if found.st_size > max_bytes:
                raise too_large(path, found.st_size, max_bytes)
            take_memory(found.st_size)
            with self._explained(path):
                data = read_all(fd, max_bytes)
        finally:
            os.close(fd)
        if len(data) > max_bytes:
            raise too_large(path, len(data), max_bytes)
        return data

    def head(self, path: str, size: int) -> bytes:
        """The first bytes of a plain file. Raises ToolError like ``read``."""
        fd = self.open_fd(path)
        try:
            if not modes.S_ISREG(mode := os.fstat(fd).st_mode):
                raise not_a_file(path, mode)
            with self._explained(path):
                return read_all(fd, size - 1)
        finally:
            os.close(fd)

    def stat(self, path: str, *, follow: bool = True) -> Stat | None:
        """What the path is, or None where nothing is. ``follow`` false looks at a link itself."""
        try:
            fd = self.open_fd(path, os.O_PATH | (0 if follow else os.O_NOFOLLOW))
        except ToolError as error:
            if error.type in (ErrorType.FILE_NOT_FOUND, ErrorType.NOT_A_DIRECTORY):
                return None
            raise
        try:
            return stat_of(os.fstat(fd))
        finally:
            os.close(fd)

    def write(self, path: str, data: bytes, *, keep_mode: bool = True) -> bool:
        """Replaces or creates the file in one step, with its parents; true when it was created.

        A link that stays inside is written through, and readers see the old or the new file, never a part.
        ``keep_mode`` false gives a file that was there the mode of a new one (0644).
        """
        inner = self.relative(path)
        with self._explained(path):
            folder, name = self._parent(path, inner)
            try:
                old = lstat(folder, name)
                if old is None or modes.S_ISREG(old.st_mode):
                    mode = old.st_mode & _PERMISSIONS if old and keep_mode else 0o644
                    self._replace(folder, name, data, mode)
                    return old is None
            finally:
                os.close(folder)
        if not modes.S_ISLNK(old.st_mode):
            raise not_a_file(path, old.st_mode)
        return self.write(self._target(path, inner), data, keep_mode=keep_mode)

    def mkdir(self, path: str) -> None:
        """Makes the directory and its parents; one that is there already is fine."""
        inner = self.relative(path)
        with self._explained(path):
            os.close(self._make_folders(inner))

    def remove(self, path: str) -> None:
        """Removes a file, a link (not what it names) or an empty directory."""
        inner = self.relative(path).rstrip("/")
        with self._explained(path):
            head, _, name = inner.rpartition("/")
            if name in (".", ".."):
                raise not_a_file(path, modes.S_IFDIR)
            folder = beneath(self._fd, head or ".", os.O_PATH | os.O_DIRECTORY)
            try:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                (os.rmdir if modes.S_ISDIR(found.st_mode) else os.unlink)(name, dir_fd=folder)
            finally:
                os.close(folder)

    def scan(self, path: str = ".") -> list[Entry]:
        """What one directory holds, by name. Raises ToolError(NOT_A_DIRECTORY) for anything else."""
        inner = self.relative(path).rstrip("/")
        fd = self.open_fd(path, _FOLDER)
        try:
            with self._explained(path), os.scandir(fd) as found:
                return sorted(entries_of("" if inner == "." else inner + "/", found), key=lambda entry: entry.path)
        finally:
            os.close(fd)

    def walk(self, path: str = ".") -> Iterator[Entry]:
        """Everything below a directory, parents first; links are not followed, what vanishes meanwhile is left out."""
        waiting = self.scan(path)[::-1]
        while waiting:
            entry = waiting.pop()
            yield entry
            if entry.stat.kind == "directory":
                with suppress(ToolError):
                    waiting += self.scan(entry.path)[::-1]

    def _below_a_root(self, path: str) -> str:
        plain = "/" + path.lstrip("/")
        for name in self._names:
            if plain == name or plain.startswith(name + "/"):
                return plain[len(name) :].lstrip("/") or "."
        raise not_allowed(path, "it lies outside the workspace", self.mount)

    def _parent(self, path: str, inner: str) -> tuple[int, str]:
        """A descriptor of the directory the path lies in, made where missing, and the last name."""
        head, _, name = inner.rpartition("/")
        if name in ("", ".", ".."):
            raise not_a_file(path, modes.S_IFDIR)
        return self._make_folders(head or "."), name

    def _make_folders(self, inner: str) -> int:
        missing: list[str] = []
        while True:
            try:
                folder = beneath(self._fd, inner, os.O_PATH | os.O_DIRECTORY)
                break
            except FileNotFoundError:
                head, _, name = inner.rstrip("/").rpartition("/")
                missing.append(name)
                inner = head or "."
        for name in reversed(missing):
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=folder)
                    if self._owner:
                        os.chown(name, *self._owner, dir_fd=folder, follow_symlinks=False)
            finally:
                os.close(folder)
            inner = f"{inner}/{name}"
            folder = beneath(self._fd, inner, os.O_PATH | os.O_DIRECTORY)
        return folder

    def _replace(self, folder: int, name: str, data: bytes, mode: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with temporary_name() as temporary:
            try:
                fd = os.open(temporary, flags, 0o600, dir_fd=folder)
                try:
                    left = memoryview(data)
                    while left:
                        left = left[os.write(fd, left) :]
                    if self._owner:
                        os.fchown(fd, *self._owner)
                    os.fchmod(fd, mode)
                finally:
                    os.close(fd)
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    def _target(self, path: str, inner: str) -> str:
        """Where a link that stays inside leads, as a path from the top that goes through no link."""
        with self._explained(path):
            fd = beneath(self._fd, inner, os.O_PATH)
        try:
            if not modes.S_ISREG(mode := os.fstat(fd).st_mode):
                raise not_a_file(path, mode)
            real, top = (str(Path(f"/proc/self/fd/{which}").readlink()) for which in (fd, self._fd))
        finally:
            os.close(fd)
        if not real.startswith(top + "/"):
            raise not_allowed(path, "its target moved", self.mount)
        return real[len(top) + 1 :]

    @contextmanager
    def _explained(self, path: str) -> Generator[None]:
        """Turns the system's errors into ToolErrors that name the path as the caller gave it."""
        try:
            yield
        except (OSError, UnicodeEncodeError) as error:
            raise explain(path, error, self.mount) from None
