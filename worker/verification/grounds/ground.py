"""Grounds: directories for checks, made of the base and the run's changes by content, where no run can reach.

A change at a protected path is left out, so that the base's content is there, and what was planted there is not. A file
that was only made executable has the base's content, and is seen. New files that git ignores do not count. What is in
the run's ``.git`` may be of its making: a ground has none of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat as modes
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event

from ....shared.checks import CommandCheck
from ....shared.libc import beneath, closing_fd
from ....shared.patch_format import printable_path
from ....shared.request import DelegationRequest
from ....shared.workspaces import delete
from ...sandbox.environment import owner
from ...sandbox.full_disk import FullDisk
from ...threads import give_way
from ...workspace.file_entries import lstat, read_all
from ...workspace.manifest import LINK, Difference
from ...workspace.source import open_folder
from ...workspace.tree_changes import FILE, ContentDiffers, Live, apply, give, parent_of
from ...workspace.tree_copy import Copier, TreeCopy
from ...workspace.workspace import Changed
from ..protected.named_files import Read
from ..protected.paths import Protection
from ..sources.kept_rust import added_tests

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_LINK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_CONFIGURATION = 1 << 20
_MAX_LINKS = 16
DOCTEST = re.compile(rb"^[ \t]*>>> .*(?:\n(?![ \t]*(?:\"\"\"|'''))[ \t]*\S.*)*", re.MULTILINE)
"""Examples with what they expect, until an empty line or the end of the docstring."""
_TESTS_OF_ITS_OWN = re.compile(rb"^[ \t]*(?:async )?def test|^class \w*Test|TestCase|@given", re.MULTILINE)


class GroundError(Exception):
    """No ground can be made of these files; ``str`` is the reason."""


def remove_grounds(workspaces: Path, id: str, of: str = "") -> None:
    """Deletes all grounds of a run, or those ``of`` one attempt: another one may work on others meanwhile."""
    for folder in workspaces.glob(f"{id}.ground-{of}*"):
        delete(folder)


@dataclass(slots=True)
class Candidate:
    """The changes of a run as checks see them. Reading files, as all methods do, blocks."""

    changed: Changed
    protection: Protection
    seen: list[Difference] = field(default_factory=list[Difference])
    """Without those at protected paths; no renames."""
    restored: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        for each in _without_renames(self.changed.differences):
            give_way()
            if not _only_made_executable(each) and self.protection.holds(
                each.path, lambda each=each: self.contents(each)
            ):
                self.restored.append(printable_path(each.path))
            else:
                self.seen.append(each)

    def tests_beside_code(self) -> set[str] | None:
        """Returns the names of tests that it adds in languages whose runners do not report files; None where it may
        change others of them. In Rust they are beside the code.
        """
        found = set[str]()
        for each in self.seen:
            names = added_tests(*self.contents(each)) if each.path.endswith(".rs") else set[str]()
            if names is None or each.path.endswith("_test.go"):
                return None
            found |= names
        return found

    def with_tests(self) -> list[str]:
        """Returns the changed paths but those of Python whose own tests, doctests among them, are as they were."""
        return [
            each.path for each in self.seen if not (each.path.endswith(".py") and _same_tests(*self.contents(each)))
        ]

    def sources(self) -> list[tuple[str, Callable[[], tuple[bytes, bytes]]]]:
        """Returns the changed files that are still there, each with what reads its content before the run and now."""
        there = [each for each in self.seen if each.new and each.new.git_mode != LINK]
        return [(each.path, lambda each=each: self.contents(each)) for each in there]

    def contents(self, each: Difference) -> tuple[bytes, bytes]:
        """Returns what a file of the changes held before the run and holds now."""
        sides = (self.changed.base, each.old), (self.changed.files, each.new)
        found = [_read(root, each.path, side.git_mode) if side else b"" for root, side in sides]
        return found[0], found[1]


def _only_made_executable(each: Difference) -> bool:
    """Whether a file has its content from before: it decides what it decided, and can be started now."""
    if each.old is None or each.new is None or each.new.sha256 is None:
        return False
    return each.old.sha256 == each.new.sha256 and (each.old.git_mode, each.new.git_mode) == ("100644", "100755")


def _same_tests(before: bytes, now: bytes) -> bool:
    return not any(_TESTS_OF_ITS_OWN.search(text) for text in (before, now)) and (
        DOCTEST.findall(before) == DOCTEST.findall(now) != []
    )


def reader_of(base: int) -> Read:
    """Returns what reads small files of a folder; None for what is none, or behind a link."""

    def read(path: str) -> bytes | None:
        try:
            with closing_fd(beneath(base, path, FILE, links=False)) as fd:
                return os.read(fd, _MAX_CONFIGURATION) if modes.S_ISREG(os.fstat(fd).st_mode) else None
        except OSError:
            return None

    return read


def protection_of(request: DelegationRequest, base: int) -> Protection:
    """Returns what a request protects on files that were like this before the run. Blocks."""

    lines = [item.run for item in request.verify if isinstance(item, CommandCheck)]
    words = (request.task, request.context, request.expected_outcome)
    return Protection(request.protect, lines, "\n".join(filter(None, words)), reader_of(base))


def fingerprint(changed: Changed) -> str:
    """Returns a digest of all changes: a result is verified only if it still has exactly these."""
    changes = sorted(map(repr, changed.differences))
    return hashlib.sha256("\n".join(changes).encode("utf-8", "surrogateescape")).hexdigest()


def _without_renames(differences: Sequence[Difference]) -> list[Difference]:
    found = (part for each in differences for part in each.apart())
    return [each for each in found if ".git" not in each.path.split("/")]


def _read(root: int, path: str, git_mode: str) -> bytes:
    """Returns a small file's content; nothing of all others, which differs from any configuration."""
    if git_mode == LINK:
        return b""
    with closing_fd(beneath(root, path, FILE, links=False)) as fd:
        return os.read(fd, _MAX_CONFIGURATION)


class Grounds:
    """The grounds of one verification, below a directory of their own, until it is closed. All of it blocks."""

    def __init__(self, workspaces: Path, id: str, of: str = "") -> None:
        self._folder, self._disk = workspaces / f"{id}.ground-{of}{secrets.token_hex(4)}", FullDisk(workspaces)
        self._disk.with_room(self._folder.mkdir, mode=0o700, parents=True)

    def close(self) -> None:
        delete(self._folder)

    def folder(self, name: str) -> Path:
        """Returns a new empty directory that the sandbox's user owns."""
        return self._disk.with_room(self._new_folder, name)

    def _new_folder(self, name: str) -> Path:
        path = self._folder / f"{name}-{secrets.token_hex(4)}"
        path.mkdir(mode=0o755)
        if uid_gid := owner():
            os.chown(path, *uid_gid)
        return path

    def make(self, name: str, base: int, candidate: Candidate | None, files: Mapping[str, str], stop: Event) -> Path:
        """Returns a new ground: the base, with the candidate's changes if there is one, and the check's files last.

        Its own name is the same for all, as what runs in the sandbox can read it in /proc; a link beside it has the
        other one. Raises ``GroundError`` where the run's files change meanwhile, and OSError.
        """
        return self._disk.with_room(self._make, name, partial(_fill, base, candidate, files, stop))

    def _make(self, name: str, fill: Callable[[Path], None]) -> Path:
        path = self._new_folder("ground")
        (self._folder / f"{name}-{path.name}").symlink_to(path.name)
        try:
            fill(path)
        except OSError:
            delete(path)  # it may be made again, and what it takes is needed then
            raise
        return path


def _fill(base: int, candidate: Candidate | None, files: Mapping[str, str], stop: Event, path: Path) -> None:
    with open_folder(path) as target:
        TreeCopy(base, target, owner=owner(), stop=stop).run()
        if candidate:
            try:
                candidate.restored += apply(target, candidate.seen, Live(candidate.changed.files, Copier(stop)))
            except ContentDiffers as error:
                raise GroundError(f"{error} changed while it was copied for the checks") from None
        for inner, text in files.items():
            write(target, inner, text.encode())


def write(target: int, path: str, data: bytes) -> None:
    """Writes a file in place of whatever is at the path, and of files and links on the way. Raises OSError.

    It has the permissions of the file that it replaces.
    """
    *above, name = path.split("/")
    done = "."
    for each in above:
        with closing_fd(beneath(target, done, _FOLDER, links=False)) as parent:
            found = lstat(parent, each)
            if found and not modes.S_ISDIR(found.st_mode):
                os.unlink(each, dir_fd=parent)
                break
        if not found:
            break
        done = f"{done}/{each}"
    with closing_fd(parent_of(target, path)) as parent:
        found = lstat(parent, name)
        if found and modes.S_ISDIR(found.st_mode):
            shutil.rmtree(name, dir_fd=parent)
        elif found:
            os.unlink(name, dir_fd=parent)
        mode = modes.S_IMODE(found.st_mode) & 0o777 if found and modes.S_ISREG(found.st_mode) else 0o644
        with os.fdopen(os.open(name, _NEW, mode, dir_fd=parent), "wb") as file:
            file.write(data)
            give(file.fileno(), mode)


def changes_by_path(changed: Changed, *, now: bool) -> Mapping[str, Difference]:
    """Returns the run's changes for ``content_of``; with ``now`` false none, for the files before them."""
    return {each.path: each for each in _without_renames(changed.differences)} if now else {}


def content_of(
    changed: Changed, changes: Mapping[str, Difference], path: str, max_bytes: int
) -> tuple[bool, bytes | None]:
    """Returns whether there is a file at the path, and its content; None where that is larger.

    ``changes`` are those of ``changes_by_path``. New files that git ignores are not there. Links lead to files inside.
    """
    path = _behind_links(path, lambda path: changed.files if path in changes else changed.base)
    if path in changes and changes[path].new is None:
        return False, None
    try:
        with closing_fd(beneath(changed.files if path in changes else changed.base, path, FILE, links=False)) as fd:
            if not modes.S_ISREG(os.fstat(fd).st_mode):
                return False, None
            data = read_all(fd, max_bytes)
            return True, data if len(data) <= max_bytes else None
    except OSError:
        return False, None


def _behind_links(path: str, root: Callable[[str], int]) -> str:
    """Returns the path that links lead to. ``root``: the directory in which a path is to be looked up."""
    for _ in range(_MAX_LINKS):
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            link = "/".join(parts[:end])
            with suppress(OSError), closing_fd(beneath(root(link), link, _LINK, links=False)) as fd:
                leads = os.fsdecode(os.readlink(b"", dir_fd=fd))
                path = os.path.normpath("/".join([*parts[: end - 1], leads, *parts[end:]]))
                break
        else:
            break
    return path
