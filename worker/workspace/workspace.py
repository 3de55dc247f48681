"""A run's own copy of the files it works on, and the facts about what became of them."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event

from shared.delegation import DirectoryWorkspace, EmptyWorkspace, FileChange, WorkspaceSpec
from shared.errors import Invalid, Misconfigured, Unavailable
from worker.sandbox.environment import MOUNT, owner
from worker.search.gitignore import GitIgnoreTree
from worker.threads import run_in_thread
from worker.workspace.allowance import UNBOUNDED, Allowance
from worker.workspace.comparison import MAX_PATCH_BYTES, Comparison, Facts, shown_path
from worker.workspace.files import Files
from worker.workspace.generation import Generation
from worker.workspace.manifest import Manifest
from worker.workspace.private import PRIVATE_DIR
from worker.workspace.treecopy import TooMuch, TreeCopy, Unreadable

_NOT_COPIED = "not-copied.json"
_MAX_NAMED = 20
_NO_FILES = (Path("/proc"), Path("/sys"))
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
        max_bytes: int | None = None,
    ) -> Workspace:
        """The delegation's workspace below ``root``: a copy of what an earlier attempt left, or made as ``spec`` says.

        ``sources`` are the directories from which copies may be made; None means any that can be read. Raises
        Invalid for a source that is not allowed, missing, unreadable or has more than ``max_bytes`` (holes not
        counted), Unavailable when the disk is full.
        """
        rules = _Rules(sources, max_bytes, Event())
        return await run_in_thread(_make, cls, Generation(root / delegation_id, attempt), spec, rules, rules.stop)

    @classmethod
    async def open(cls, delegation_id: str, root: Path) -> Workspace:
        """The workspace an earlier attempt made. Raises FileNotFoundError where there is none."""
        folder = root / delegation_id
        return await run_in_thread(cls, Generation.latest(folder) or Generation(folder, 1))

    def close(self) -> None:
        """Frees the descriptors; the files stay."""
        self.files.close()
        while self._fds:
            os.close(self._fds.pop())

    async def remove(self) -> None:
        """Closes it and deletes all its files."""
        self.close()
        await run_in_thread(delete, self._folder)

    async def note_changes(self) -> None:
        """To be called after each step with effects: remembers which files differ for the first time."""
        await run_in_thread(self._manifest.note)

    async def changes(self) -> list[FileChange]:
        """Every file that differs from the start, whoever changed it, in order of first change, each path once."""
        return [*(await self.facts()).changes]

    async def patch(self, max_bytes: int = MAX_PATCH_BYTES) -> str:
        """The same as a patch for ``git apply``. Files that do not fit are left out, and its first lines name them."""
        return (await self.facts(max_bytes=max_bytes)).patch

    async def facts(self, allowance: Allowance = UNBOUNDED, max_bytes: int = MAX_PATCH_BYTES) -> Facts:
        """Both at once, and what they lack: what is not known when the allowance is over is left out of them."""
        return await run_in_thread(self._facts, allowance, max_bytes)

    def _facts(self, allowance: Allowance, max_bytes: int) -> Facts:
        files, base = self._fds
        compared = Comparison(self._manifest, files, base, allowance, max_bytes).run()
        return replace(compared, not_copied=_not_copied(self._folder))


@dataclass(frozen=True, slots=True)
class _Rules:
    """What may be copied."""

    sources: Sequence[Path] | None
    max_bytes: int | None
    stop: Event


def _make(cls: type[Workspace], wanted: Generation, spec: WorkspaceSpec, rules: _Rules, _: Event) -> Workspace:
    folder = wanted.folder
    if latest := Generation.latest(folder):
        return cls(latest if latest.number >= wanted.number else latest.next(wanted.number))
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    making = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}")  # whole or not at all: workers die at any time
    try:
        for name in ("files", "base", "marks"):
            (making / name).mkdir(mode=0o700, parents=True)
        making.chmod(0o700)
        _fill(making, spec, rules)
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


def _fill(folder: Path, spec: WorkspaceSpec, rules: _Rules) -> None:
    files = folder / "files"
    files.chmod(0o755)
    if whose := owner():
        os.chown(files, *whose)
    if isinstance(spec, EmptyWorkspace):
        return
    if not isinstance(spec, DirectoryWorkspace):
        raise _invalid("/workspace/kind", f"workspaces of kind {spec.kind!r} are not built yet; use directory or empty")
    with _source(spec.path, rules.sources) as source:
        try:
            _copy(source, folder, ignored=spec.ignored, rules=rules)
        except Unreadable as error:
            raise _invalid("/workspace/path", f"{error.path} below {spec.path} cannot be read: {error.why}") from None
        except TooMuch as error:
            most = f"{(rules.max_bytes or 0) / (1 << 30):g} GiB (set DEPUTIZE_WORKSPACE_MAX_BYTES for more)"
            detail = f"{spec.path} is too large to be copied: with {error.path} it has more than {most}"
            raise _invalid("/workspace/path", detail) from None


def _copy(source: int, folder: Path, *, ignored: bool, rules: _Rules) -> None:
    root = folder.parent.stat()
    skip = (root.st_dev, root.st_ino)  # a source that holds our own workspaces
    with _opened(folder / "files") as files, _opened(folder / "base") as base:
        with Files(Path(f"/proc/self/fd/{source}")) as original:
            ignoring = None if ignored else GitIgnoreTree(original)
            wanted = partial(_is_copied, ignoring)
            copy = TreeCopy(source, files, wanted, owner(), skip, rules.stop, rules.max_bytes)
            copy.run()
        (folder / _NOT_COPIED).write_text(json.dumps(_named(copy.left_out)), "ascii")
        TreeCopy(files, base, lambda path, _: path.rpartition("/")[2] != ".git", stop=rules.stop).run()


def _named(left_out: Mapping[str, str]) -> list[str]:
    """What to say of special files."""
    shown = [f"{shown_path(path)} is {what} and was not copied" for path, what in list(left_out.items())[:_MAX_NAMED]]
    more = len(left_out) - len(shown)
    return [*shown, *([f"{more} more special files were not copied"] if more else [])]


def _not_copied(folder: Path) -> list[str]:
    try:
        return json.loads((folder / _NOT_COPIED).read_text("ascii"))
    except FileNotFoundError:
        return []


def _is_copied(ignoring: GitIgnoreTree | None, path: str, is_directory: bool) -> bool:
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
        if why := _never_copied(real):
            raise _invalid("/workspace/path", f"{path} cannot be copied: {why}; give a directory of your work")
        roots = None if allowed is None else [each.resolve() for each in allowed]
        if roots is not None and not any(real.is_relative_to(each) for each in roots):
            where = ", ".join(map(str, roots)) or "no directory (set DEPUTIZE_WORKSPACE_SOURCES)"
            raise _invalid("/workspace/path", f"{path} may not be copied; allowed: {where}")
        yield fd
    finally:
        os.close(fd)


def _never_copied(real: Path) -> str | None:
    if real == Path("/"):
        return "it is the whole machine"
    if any(real.is_relative_to(each) for each in _NO_FILES):
        return "what it shows are no files, the kernel makes it up"
    return None


@contextmanager
def _opened(folder: Path) -> Generator[int]:
    fd = os.open(folder, _FOLDER)
    try:
        yield fd
    finally:
        os.close(fd)


def _invalid(pointer: str, detail: str) -> Invalid:
    return Invalid(detail, [{"pointer": pointer, "detail": detail}])


def check_writable(root: Path) -> None:
    """Raises ``Misconfigured`` that says what to do where workspaces cannot be made below ``root``."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = root / f"selftest-{secrets.token_hex(4)}"
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        whose = f"user {os.getuid()}, group {os.getgid()}"
        raise Misconfigured(
            f"workspaces cannot be made in {root}: {error.strerror} for {whose}. Let that user write there "
            f"(chown {os.getuid()} {root}, or fsGroup on Kubernetes), or set DEPUTIZE_WORKSPACE_ROOT to another folder"
        ) from None


def delete(folder: Path) -> None:
    """Deletes a tree however deep it is and whatever modes a command gave its directories."""
    for _ in range(2):
        if subprocess.run(["rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return
        subprocess.run(["chmod", "-R", "u+rwX", "--", folder], check=False, stderr=subprocess.DEVNULL)
    shutil.rmtree(folder)
