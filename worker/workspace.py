"""A run's own copy of the files it works on, and the facts about what became of them (contract §7)."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event

from shared.delegation import DirectoryWorkspace, EmptyWorkspace, FileChange, WorkspaceSpec
from shared.errors import Invalid, Unavailable
from worker.copies.generation import Generation
from worker.copies.manifest import Difference, Manifest, content_of
from worker.copies.patch import FilePatch, file_patch, quoted
from worker.copies.treecopy import TreeCopy, Unreadable
from worker.files import Files
from worker.output import PRIVATE_DIR
from worker.sandbox.environment import MOUNT, owner
from worker.search.searching import Ignoring
from worker.threads import to_the_end

MAX_PATCH_BYTES = 2 * 1024 * 1024
_MAX_COMPARED_BYTES = 8 * 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Workspace:
    """The directories of one delegation: ``files`` is worked in, ``base`` stays as it was at the start.

    Made by ``create``, which finds the same state again for a resumed run. Both lie in a directory that only the
    worker enters; nobody else may put links where we look.
    """

    def __init__(self, generation: Generation) -> None:
        self.path = generation.files
        self.marks = generation.marks
        self.files = Files(self.path, MOUNT, owner())
        self._folder = generation.folder
        self._fds = [os.open(folder, _FOLDER) for folder in (generation.files, self._folder / "base")]
        self._manifest = Manifest(self._folder, generation.start, *self._fds)

    @classmethod
    async def create(
        cls,
        spec: WorkspaceSpec,
        delegation_id: str,
        root: Path,
        sources: Sequence[Path] | None = None,
        attempt: int = 1,
    ) -> Workspace:
        """The delegation's workspace below ``root``: a copy of what an earlier attempt left, or made as ``spec`` says.

        ``sources`` are the directories from which copies may be made; None means any that can be read. Raises
        Invalid for a source that is not allowed, missing or unreadable, Unavailable when the disk is full.
        """
        folder = root / delegation_id
        return await to_the_end(_make, cls, Generation(folder, attempt), spec, sources, Event())

    @classmethod
    async def open(cls, delegation_id: str, root: Path) -> Workspace:
        """The workspace an earlier attempt made. Raises FileNotFoundError where there is none."""
        folder = root / delegation_id
        return await to_the_end(cls, Generation.latest(folder) or Generation(folder, 1))

    def close(self) -> None:
        """Frees the descriptors; the files stay."""
        self.files.close()
        while self._fds:
            os.close(self._fds.pop())

    async def remove(self) -> None:
        """Closes it and deletes all its files."""
        self.close()
        await to_the_end(delete, self._folder)

    async def note_changes(self) -> None:
        """To be called after each step with effects: remembers which files differ for the first time."""
        await to_the_end(self._manifest.note)

    async def changes(self) -> list[FileChange]:
        """Every file that differs from the start, whoever changed it, in order of first change, each path once."""
        return await to_the_end(self._changes)

    async def patch(self, max_bytes: int = MAX_PATCH_BYTES) -> str:
        """The same as a patch for ``git apply``. Files that do not fit are left out, and its first lines name them."""
        return await to_the_end(self._patch, max_bytes)

    def _changes(self) -> list[FileChange]:
        return [self._change(difference) for difference in self._manifest.differences()]

    def _change(self, difference: Difference) -> FileChange:
        old, new = difference.old, difference.new
        patch = self._compared(difference) or FilePatch("")
        kind = (
            "renamed" if difference.source else "created" if old is None else "deleted" if new is None else "modified"
        )
        return FileChange.model_validate(
            {
                "path": _shown(difference.path),
                "change": "renamed" if difference.source else kind,
                "from": difference.source and _shown(difference.source),
                "base_hash": old and old.sha256,
                "new_hash": new and new.sha256,
                "added_lines": patch.added,
                "removed_lines": patch.removed,
            }
        )

    def _patch(self, max_bytes: int) -> str:
        parts: list[str] = []
        left_out: list[str] = []
        room = max_bytes
        for difference in self._manifest.differences():
            part = self._compared(difference)
            size = len(part.text.encode()) if part else 0
            if part is None or size > room:
                left_out.append(f"# left out, too large: {quoted('', difference.path)}\n")
            else:
                parts.append(part.text)
                room -= size
        return "".join([*left_out, *parts])

    def _compared(self, difference: Difference) -> FilePatch | None:
        """The path's patch, or None where it is too large or was gone before we looked."""
        files, base = self._fds
        old_at = self._manifest.base.get(difference.source or difference.path)
        new_at = self._manifest.now.get(difference.path)
        old = content_of(base, difference.source or difference.path, old_at, _MAX_COMPARED_BYTES) if old_at else b""
        new = content_of(files, difference.path, new_at, _MAX_COMPARED_BYTES) if new_at else b""
        return None if old is None or new is None else file_patch(difference, old, new)


def _shown(path: str) -> str:
    """The path as JSON can hold it: names that are no UTF-8 have their odd bytes spelled out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _make(
    cls: type[Workspace], wanted: Generation, spec: WorkspaceSpec, sources: Sequence[Path] | None, stop: Event
) -> Workspace:
    folder = wanted.folder
    if latest := Generation.latest(folder):
        return cls(latest if latest.number >= wanted.number else latest.next(wanted.number))
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    making = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}")  # whole or not at all: workers die at any time
    try:
        for name in ("files", "base", "marks"):
            (making / name).mkdir(mode=0o700, parents=True)
        making.chmod(0o700)
        _fill(making, spec, sources, stop)
        cls(Generation(making, 1)).close()
        making.rename(folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Unavailable(f"no room for the workspace: {error.strerror}; free some below {folder.parent}") from None
        raise
    finally:
        if making.exists():
            delete(making)
    return cls(Generation(folder, 1))


def _fill(folder: Path, spec: WorkspaceSpec, sources: Sequence[Path] | None, stop: Event) -> None:
    files = folder / "files"
    files.chmod(0o755)
    if whose := owner():
        os.chown(files, *whose)
    if isinstance(spec, EmptyWorkspace):
        return
    if not isinstance(spec, DirectoryWorkspace):
        raise _invalid("/workspace/kind", f"workspaces of kind {spec.kind!r} are not built yet; use directory or empty")
    with _source(spec.path, sources) as source:
        try:
            _copy(source, folder, ignored=spec.ignored, stop=stop)
        except Unreadable as error:
            raise _invalid("/workspace/path", f"{error.path} below {spec.path} cannot be read: {error.why}") from None


def _copy(source: int, folder: Path, *, ignored: bool, stop: Event) -> None:
    root = folder.parent.stat()
    skip = (root.st_dev, root.st_ino)  # a source that holds our own workspaces
    with _opened(folder / "files") as files, _opened(folder / "base") as base:
        with Files(Path(f"/proc/self/fd/{source}")) as original:
            ignoring = None if ignored else Ignoring(original)
            TreeCopy(source, files, partial(_is_copied, ignoring), owner(), skip, stop).run()
        TreeCopy(files, base, lambda path, _: path.rpartition("/")[2] != ".git", stop=stop).run()


def _is_copied(ignoring: Ignoring | None, path: str, is_directory: bool) -> bool:
    name = path.rpartition("/")[2]
    if is_directory and name in (".git", PRIVATE_DIR):
        return name == ".git"
    return ignoring is None or not ignoring.ignores(path, directory=is_directory)


@contextmanager
def _source(path: str, allowed: Sequence[Path] | None) -> Generator[int]:
    """The opened source directory. What was opened is judged, not the name, which may lead elsewhere a moment later."""
    if not Path(path).is_absolute():
        raise _invalid("/workspace/path", f"{path} is not absolute, and the worker has a working directory of its own")
    try:
        fd = os.open(path, _FOLDER)
    except OSError as error:
        raise _invalid("/workspace/path", f"{path} cannot be opened as a directory: {error.strerror}") from None
    try:
        real = Path(f"/proc/self/fd/{fd}").readlink()
        roots = None if allowed is None else [each.resolve() for each in allowed]
        if roots is not None and not any(real.is_relative_to(each) for each in roots):
            where = ", ".join(map(str, roots)) or "no directory (set DEPUTIZE_WORKSPACE_SOURCES)"
            raise _invalid("/workspace/path", f"{path} may not be copied; allowed: {where}")
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _opened(folder: Path) -> Generator[int]:
    fd = os.open(folder, _FOLDER)
    try:
        yield fd
    finally:
        os.close(fd)


def _invalid(pointer: str, detail: str) -> Invalid:
    return Invalid(detail, [{"pointer": pointer, "detail": detail}])


def delete(folder: Path) -> None:
    """Deletes a tree however deep it is and whatever modes a command gave its directories."""
    for _ in range(2):
        if subprocess.run(["rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return
        subprocess.run(["chmod", "-R", "u+rwX", "--", folder], check=False, stderr=subprocess.DEVNULL)
    shutil.rmtree(folder)
