"""A directory of the caller: what its files hold, and the replacement of several at once, never through a link."""

from __future__ import annotations

import errno
import os
import secrets
import stat as modes
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from ..libc import beneath, closing_fd
from ..patch_format import blob_id

FILE, PROGRAM, LINK, FOLDER, SPECIAL = "100644", "100755", "120000", "040000", "special"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY


@dataclass(frozen=True, slots=True)
class FileState:
    """What is at a path: git's mode, and the content, or a link's target."""

    mode: str
    data: bytes = b""

    @property
    def id(self) -> str:
        return blob_id(self.data)

    @property
    def is_file(self) -> bool:
        return self.mode in (FILE, PROGRAM)

    @property
    def name(self) -> str:
        return {LINK: "a link", FOLDER: "a directory", SPECIAL: "a special file"}.get(self.mode, "a file")


class Directory:
    """An open directory. Paths are relative to it, and no link is followed on the way to them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, _FOLDER | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, path: str) -> FileState | None:
        """Returns what is at the path, None if nothing is. Raises OSError."""
        there = self.kind(path)
        if there is None or not there.is_file:
            return there
        fd = beneath(self._fd, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, links=False)
        with os.fdopen(fd, "rb") as file:
            return FileState(PROGRAM if os.fstat(fd).st_mode & modes.S_IXUSR else FILE, file.read())

    def kind(self, path: str) -> FileState | None:
        """Returns what is at the path, without a file's content. Raises OSError."""
        try:
            fd = beneath(self._fd, path, os.O_PATH | os.O_NOFOLLOW, links=False)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None  # a link on the way is for the caller to find, who looks at each folder
            raise
        with closing_fd(fd):
            mode = os.fstat(fd).st_mode
            if modes.S_ISLNK(mode):
                return FileState(LINK, os.fsencode(os.readlink("", dir_fd=fd)))
        if modes.S_ISREG(mode):
            return FileState(PROGRAM if mode & modes.S_IXUSR else FILE)
        return FileState(FOLDER if modes.S_ISDIR(mode) else SPECIAL)

    def names(self, path: str) -> list[str]:
        """Returns the paths in a directory."""
        with closing_fd(beneath(self._fd, path, _FOLDER, links=False)) as fd, os.scandir(fd) as found:
            return [f"{path}/{entry.name}" for entry in found]

    def replace(self, states: Mapping[str, FileState | None]) -> None:
        """Brings the paths to their new states; None removes a file, and its folders if nothing else is in them.

        All contents are written before the first path changes, so that a full disk changes nothing. Raises OSError.
        """
        with self._staging() as staging:
            for number, (path, state) in enumerate(states.items()):
                if state is not None:
                    self._stage(f"{staging}/{number}", state, path)
            for path, state in states.items():
                if state is None:
                    self._remove(path)
            for number, (path, state) in enumerate(states.items()):
                if state is not None:
                    with self._parent(path, make=True) as (folder, name):
                        os.replace(f"{staging}/{number}", name, src_dir_fd=self._fd, dst_dir_fd=folder)

    @contextmanager
    def writing(self, path: str, *, executable: bool) -> Generator[BinaryIO]:
        """Yields a file to write, which is at the path when the block ends without an error. Raises OSError."""
        with self._staging() as staging:
            staged = f"{staging}/0"
            fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _mode(executable), dir_fd=self._fd)
            with os.fdopen(fd, "wb") as file:
                yield file
            with self._parent(path, make=True) as (folder, name):
                os.replace(staged, name, src_dir_fd=self._fd, dst_dir_fd=folder)

    @contextmanager
    def _staging(self) -> Generator[str]:
        name = f".deputize-apply-{secrets.token_hex(4)}"
        os.mkdir(name, 0o700, dir_fd=self._fd)
        try:
            yield name
        finally:
            for left in self.names(name):
                os.unlink(left, dir_fd=self._fd)
            os.rmdir(name, dir_fd=self._fd)

    def _stage(self, staged: str, state: FileState, path: str) -> None:
        if state.mode == LINK:
            os.symlink(os.fsdecode(state.data), staged, dir_fd=self._fd)
            return
        executable = state.mode == PROGRAM
        fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _mode(executable), dir_fd=self._fd)
        with os.fdopen(fd, "wb") as file:
            file.write(state.data)
            with suppress(FileNotFoundError, NotADirectoryError), self._parent(path) as (folder, name):
                before = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                if modes.S_ISREG(before):
                    kept = before & 0o666
                    os.fchmod(fd, kept | ((kept & 0o444) >> 2 if executable else 0))

    def _remove(self, path: str) -> None:
        there = self.kind(path)
        if there is None or there.mode == FOLDER:
            return
        with self._parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)
        while path := path.rpartition("/")[0]:
            with self._parent(path) as (folder, name):
                try:
                    os.rmdir(name, dir_fd=folder)
                except OSError:
                    return  # something else is in it

    @contextmanager
    def _parent(self, path: str, *, make: bool = False) -> Generator[tuple[int, str]]:
        head, _, name = path.rpartition("/")
        folder = beneath(self._fd, ".", _FOLDER, links=False)
        try:
            for each in head.split("/") if head else ():
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(each, dir_fd=folder)
                inner = beneath(folder, each, _FOLDER, links=False)
                os.close(folder)
                folder = inner
            yield folder, name
        finally:
            os.close(folder)


def _mode(executable: bool) -> int:
    return 0o777 if executable else 0o666
