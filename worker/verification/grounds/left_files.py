"""What a command left on a ground, found against a ground of the same files, and undone.

No link is followed: code under test may have made it, and it may lead out of the ground.
"""

from __future__ import annotations

import os
import re
import stat as modes
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from threading import Event

from ....shared.libc import beneath, closing_fd
from ...threads import give_way
from ...workspace.file_entries import lstat
from ...workspace.source import open_folder
from ...workspace.tree_changes import FILE, give, parent_of
from ...workspace.tree_copy import Copier
from .ground import write

_NOT_ENTERED = {"node_modules", ".git", ".venv", "venv"}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_TARGET = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20
_State = tuple[int, int | str]
"""The mode of an entry with the size of a file, or with where a link leads."""


def left(ground: Path, before: Path) -> set[str]:
    """Returns the paths of a ground that a command has made, changed or removed there. Blocks.

    ``before``: a ground of the same files without that command.
    """
    now, known = dict(_entries(ground)), dict(_entries(before))
    changed = {path for path in now.keys() | known.keys() if now.get(path) != known.get(path)}
    with open_folder(ground) as first, open_folder(before) as second:
        same = (path for path in now.keys() - changed if modes.S_ISREG(now[path][0]))
        return changed | {path for path in same if not _is_same(path, first, second)}


def paths_of(ground: Path) -> Iterator[str]:
    """Yields the paths of all that is below a ground. Blocks."""
    yield from (path for path, _ in _entries(ground))


def _entries(ground: Path) -> Iterator[tuple[str, _State]]:
    for folder, folders, names in os.walk(ground):
        give_way()
        folders[:] = [name for name in folders if name not in _NOT_ENTERED]
        for name in (*folders, *names):
            path = Path(folder, name)
            yield str(path.relative_to(ground)), _state(path)


def _state(path: Path) -> _State:
    status = path.lstat()
    if modes.S_ISREG(status.st_mode):
        return status.st_mode, status.st_size
    return modes.S_IFMT(status.st_mode), str(path.readlink()) if modes.S_ISLNK(status.st_mode) else 0


def _is_same(path: str, *grounds: int) -> bool:
    """Whether two files of one size have the same bytes."""
    give_way()
    with ExitStack() as opened:
        try:
            first, second = (
                opened.enter_context(closing_fd(beneath(ground, path, FILE, links=False))) for ground in grounds
            )
        except OSError:
            return False
        while part := os.read(first, _CHUNK):
            if part != os.read(second, _CHUNK):
                return False
        return True


def is_named(path: str, text: str, before: Collection[str]) -> bool:
    """Whether a test names a file that it leaves: by its path, its name, or a directory that it made for it.

    ``before``: the paths that were there before the tests ran. A directory among them is that of the code. The name
    stands alone between quotes or in a path: other words of a test are those of the code that it calls.
    """
    give_way()
    above = [str(each) for each in PurePosixPath(path).parents if str(each) != "." and str(each) not in before]
    names = {path, *(PurePosixPath(each).name for each in (path, *above))}
    there = [name for name in names if len(name) > 2 and name in text]
    return any(re.search(rf"[\"'`/]{re.escape(name)}[\"'`/]", text) for name in there)


def put_back(paths: Collection[str], used: Path, before: Path) -> None:
    """Copies what a ground has at these paths to the used one, in place of what is there. Blocks; raises OSError."""
    with open_folder(used) as target, open_folder(before) as source:
        for path in sorted(paths, reverse=True):
            _remove(target, path)
        for path in sorted(paths):
            give_way()
            _copy(source, target, path)


def _remove(target: int, path: str) -> None:
    """Removes an entry, but for a directory that is not empty."""
    folder, _, name = path.rpartition("/")
    with suppress(OSError), closing_fd(beneath(target, folder or ".", _FOLDER, links=False)) as parent:
        status = lstat(parent, name)
        if status and modes.S_ISDIR(status.st_mode):
            os.rmdir(name, dir_fd=parent)
        elif status:
            os.unlink(name, dir_fd=parent)


def _copy(source: int, target: int, path: str) -> None:
    folder, _, name = path.rpartition("/")
    try:
        parent = beneath(source, folder or ".", _FOLDER, links=False)
    except OSError:
        return
    with closing_fd(parent):
        status = lstat(parent, name)
        if status is None:
            return
        if modes.S_ISREG(status.st_mode):
            write(target, path, b"")
            with (
                closing_fd(beneath(parent, name, FILE, links=False)) as original,
                closing_fd(beneath(target, path, _TARGET, links=False)) as copy,
            ):
                Copier(Event()).copy(original, copy)
                give(copy, modes.S_IMODE(status.st_mode) & 0o777)
        elif modes.S_ISLNK(status.st_mode):
            _emptied(target, path)
            with closing_fd(parent_of(target, path)) as place:
                os.symlink(os.readlink(name, dir_fd=parent), name, dir_fd=place)
        elif modes.S_ISDIR(status.st_mode):
            _emptied(target, path)
            os.close(parent_of(target, f"{path}/."))


def _emptied(target: int, path: str) -> None:
    """Removes what is at a path, and makes the directories above it."""
    write(target, path, b"")
    _remove(target, path)
