"""A run's own copy of the files it works on, and its changes to them."""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock
from typing import NamedTuple

from ...shared.errors import Invalid, Misconfigured
from ...shared.listed import Source, is_copied, listed, outer_rules
from ...shared.log import log
from ...shared.request import ArchiveWorkspace, DirectoryWorkspace, EmptyWorkspace, WorkspaceSpec
from ...shared.workspaces import UPLOAD_POINTER, UPLOADS, delete, upload_path
from ..linux.system import exhausted
from ..sandbox.environment import MOUNT, owner
from ..sandbox.full_disk import FullDisk
from ..sandbox.project_tools import ProjectTools
from ..threads import (
    give_way,
    release_slot,
    run_in_thread,
    run_short,
)
from .archive import BadEntry, Extraction
from .file_entries import is_private
from .files import Files
from .generation import PREPARED, Generation, NumberTaken
from .manifest import UNBOUNDED, Deadline, Difference, scan_with_size
from .objects import Objects
from .patches import MAX_PATCH_BYTES, Comparison, Facts
from .removal import disk_bytes
from .snapshot_store import StoredRun
from .snapshots import Snapshots
from .source import (
    KeptRules,
    SourceRules,
    copy_linked_state,
    held_source,
    is_small,
    is_workspace,
    linked_state,
    open_folder,
    open_source,
    read_origin,
    write_origin,
)
from .step_changes import StepChanges, StepComparison
from .tree_copy import CopyStopped, CopyTally, SourceTooLarge, SourceUnreadable, TreeCopy, special_sentences

Restore = Callable[[Path, Event], None]
_ANY_SOURCE = SourceRules()
NOT_COPIED = "not-copied.json"
"""Sentences about what a workspace lacks of its source, beside it."""
_MAX_SCANNED = 250
"""Files up to which a scan costs less than a process that measures them."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


class Workspace:
    """The directories of one delegation: the run works in ``files``, ``base`` is a copy from its start.

    ``create`` returns the same state to a resumed run. Both are in a directory that only the worker can enter, so that
    no other process can place links in it.
    """

    def __init__(self, generation: Generation, taken: int | None = None) -> None:
        self.path = generation.files
        self.base = generation.folder / "base"
        """The copy from the run's start, which no command sees."""
        self.status_folder = generation.status_folder
        self.files = Files(self.path, MOUNT, owner())
        self.folder = self._folder = generation.folder
        """The folder of the delegation."""
        self.changes = generation.changes
        """Where what commands write over prepared directories goes, which are none of the run's files."""
        self.services = generation.services
        """Where the data of what runs beside the commands lies meanwhile."""
        self.tools: ProjectTools | None = None
        """What an environment lets commands find, once that is known."""
        self.until_closed = ExitStack()
        self.origin = read_origin(self._folder)
        """The directory that the first of a chain of copies was made from; None for an empty workspace."""
        self._fds = [os.open(folder, _FOLDER) for folder in (self.path, self.base)]
        self._objects, self._noting = Objects(self._folder), Lock()
        self._generation = generation
        self._stored: StoredRun | None = None
        self.snapshots = Snapshots(generation.log, generation.start, self._objects, *self._fds)
        self.taken = taken if self.snapshots.taken is None else self.snapshots.taken
        """Bytes that the files took on disk before the first call of this attempt; None where that is not known."""
        if any(map(is_private, self.snapshots.now)):  # the worker's own files, which are not counted
            self.taken = None

    @classmethod
    async def create(
        cls,
        spec: WorkspaceSpec,
        delegation_id: str,
        root: Path,
        source: SourceRules = _ANY_SOURCE,
        attempt: int = 1,
        max_bytes: int | None = None,
        tally: CopyTally | None = None,
        *,
        restore: Restore | None = None,
    ) -> Workspace:
        """Creates the workspace of an attempt: a copy of the previous attempt's files, or a new one.

        Args:
            spec: The requested workspace.
            delegation_id: The delegation.
            root: The directory of all workspaces.
            source: Which directories may be copied; default: all.
            attempt: The number of the attempt; 0 for files that the first attempt is to take.
            max_bytes: The largest number of bytes to copy, without holes.
            tally: Counts what is copied.
            restore: Fills a new workspace's folder instead.

        Raises:
            Invalid: The source is not allowed, missing, unreadable or too large.
            NumberTaken: Another attempt has files of this number, and works with them or has done so.
            OSError: The disk is full.
        """
        rules = _CopyRules(source, max_bytes, Event(), tally or CopyTally(), restore)
        wanted = Generation(root / delegation_id, attempt)
        copied = Path(spec.path) if isinstance(spec, DirectoryWorkspace) and not spec.exclude else None
        may_be_small = restore is None and (copied or isinstance(spec, EmptyWorkspace))
        # Each system call of a thread interrupts the loop: the hundreds of a small workspace cost less on it.
        if may_be_small and await run_short(is_small, copied, wanted.folder):
            with suppress(OSError):  # a full disk is waited for in a thread
                return _create(cls, wanted, spec, rules, rules.stop)
        return await run_short(FullDisk(root).with_room, _create, cls, wanted, spec, rules, rules.stop)

    @classmethod
    async def open(cls, delegation_id: str, root: Path) -> Workspace:
        """Opens the workspace of an earlier attempt. Raises FileNotFoundError if there is none."""
        folder = root / delegation_id
        return await run_in_thread(cls, Generation.latest(folder) or Generation(folder, 1))

    def close(self) -> None:
        """Closes the descriptors; the files remain."""
        self.files.close()
        self.until_closed.close()
        while self._fds:
            os.close(self._fds.pop())

    async def remove(self) -> None:
        """Closes the workspace and deletes all its files."""
        self.close()
        await run_in_thread(delete, self._folder)

    def disk_bytes(self) -> int | None:
        """Returns what everything of the delegation takes on disk; None where that is not known. Blocks."""
        if len(self.snapshots.now) <= _MAX_SCANNED:
            with open_folder(self._folder) as folder:
                if (size := scan_with_size(folder)[1]) is not None:
                    return size
        return disk_bytes(self._folder)

    async def store_in(self, stored: StoredRun) -> None:
        """Stores the files as they are, and from now on each snapshot, also where other machines can read them."""
        self._stored = stored
        await run_in_thread(self._store, stored.begin)

    def _store(self, store: Callable[[Generation, Snapshots], None]) -> None:
        try:
            store(self._generation, self.snapshots)
        except OSError as error:  # the run goes on, only not elsewhere
            log.warning("%s", error)

    async def keep_start(self) -> None:
        """Keeps what ``base`` lacks of the start; called before the first step with effects."""
        if self.snapshots.lacks_start:
            await run_in_thread(self.snapshots.keep_start)

    async def note_changes(self, step: str = "", mask: Callable[[str], str] = str) -> StepChanges | None:
        """Takes a snapshot; called after each step with effects.

        Returns what changed since the last one, if that belongs to a step; None for nothing. ``mask`` hides secrets.
        """
        return await run_in_thread(self._note, step, mask)

    def _note(self, step: str, mask: Callable[[str], str]) -> StepChanges | None:
        with self._noting:  # calls of subagents are executed side by side
            before = self.snapshots.history.turns.count
            self.snapshots.take(step)
            if self._stored and self.snapshots.history.turns.count > before:
                self._store(self._stored.save)
            if not step or self.snapshots.history.step != step:
                return None
            return StepComparison(self.snapshots, self._objects, self._fds[1]).run(mask)

    async def size(self, most: int) -> int:
        """Returns the bytes of the files: those on disk where they may be more than ``most``, else with their holes.

        Called after the changes were recorded, so that most calls measure nothing.
        """
        recorded = self.snapshots.size
        return recorded if recorded <= most else await run_in_thread(disk_bytes, self.path) or 0

    async def facts(self, deadline: Deadline = UNBOUNDED, max_bytes: int = MAX_PATCH_BYTES) -> Facts:
        """Returns changes and patch, and what they omit, among it everything not compared before the deadline."""
        return await run_in_thread(self.compare, deadline, max_bytes)

    def compare(
        self, deadline: Deadline = UNBOUNDED, max_bytes: int = MAX_PATCH_BYTES, restored: Collection[str] = ()
    ) -> Facts:
        """Does the blocking work of ``facts``. ``restored`` are the paths that checks have put back."""
        compared = replace(self._comparison(deadline, max_bytes), restored=restored).run()
        with suppress(FileNotFoundError):  # an empty workspace has none
            not_copied = json.loads((self._folder / NOT_COPIED).read_text("ascii"))
            return replace(compared, not_copied=[*not_copied, *compared.not_copied])
        return compared

    def changed(self) -> Changed:
        """Returns the run's changes by content, with the directories that hold both sides. Blocks."""
        files, base = self._fds
        return Changed(files, base, self._comparison().differences()[0])

    def _comparison(self, deadline: Deadline = UNBOUNDED, max_bytes: int = MAX_PATCH_BYTES) -> Comparison:
        files, base = self._fds
        kept = KeptRules.read(self._folder)
        outer = None if kept.everything else kept.outer
        return Comparison(self.snapshots, files, base, deadline, max_bytes, outer, kept.cloned)


class Changed(NamedTuple):
    """The files of a run now and at its start (open directories), and where they differ."""

    files: int
    base: int
    differences: Sequence[Difference]


@dataclass(frozen=True, slots=True)
class _CopyRules:
    """Which directories may be copied, and how much."""

    source: SourceRules
    max_bytes: int | None
    stop: Event
    tally: CopyTally
    restore: Restore | None

    def go_on(self) -> None:
        if self.stop.is_set():
            raise CopyStopped
        give_way()


def _create(cls: type[Workspace], wanted: Generation, spec: WorkspaceSpec, rules: _CopyRules, _: Event) -> Workspace:
    folder = wanted.folder
    if latest := Generation.latest(folder):
        return cls(latest.next(wanted.number))
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}")  # renamed when it is complete
    try:
        for made in (temporary, *(temporary / name for name in ("files", "base", "marks"))):
            made.mkdir(mode=0o700)
        _fill(temporary, spec, rules)
        new = Generation(temporary, 1)
        with open_folder(temporary / "files") as files, open_folder(temporary / "base") as base:
            taken = Snapshots(new.log, new.start, Objects(temporary), files, base).taken
        new.log.touch()  # while the disk takes files: another run may leave room for none
        if not wanted.number:
            (temporary / PREPARED).touch()
        _move(temporary, folder)
    finally:
        if temporary.exists():
            delete(temporary)
    return cls(Generation(folder, 1), taken)


def _move(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError as error:
        if error.errno in _NOT_EMPTY:
            raise NumberTaken from None
        raise


async def with_free_number(
    create: Callable[[int], Awaitable[Workspace]], attempt: int, check_fence: Callable[[], Awaitable[None]]
) -> Workspace:
    """Creates the workspace of an attempt by its number, else by the next one that no other attempt has taken.

    ``check_fence`` raises ``Fenced`` for the attempt whose claim is lost: the latest number is that of the other one.
    """
    while True:
        try:
            return await create(attempt)
        except NumberTaken:
            await check_fence()
            attempt += 1


def _fill(folder: Path, spec: WorkspaceSpec, rules: _CopyRules) -> None:
    files = folder / "files"
    files.chmod(0o755)
    if uid_gid := owner():
        os.chown(files, *uid_gid)
    if rules.restore:
        rules.restore(folder, rules.stop)
        return
    if isinstance(spec, EmptyWorkspace):
        return
    if isinstance(spec, ArchiveWorkspace):
        _extract(spec.upload, folder, rules)
        return
    assert isinstance(spec, DirectoryWorkspace)  # a repository fills its workspace itself, as what is restored does
    with open_source(spec.path, rules.source) as source, held_source(spec.path, source, folder):
        try:
            _copy(source, folder, spec, rules)
        except SourceUnreadable as error:
            raise Invalid.at("/workspace/path", f"{error.path} below {spec.path} cannot be read: {error.why}") from None
        except SourceTooLarge as error:
            raise _too_large("/workspace/path", f"{spec.path} is too large to be copied", error, rules) from None


def _extract(upload: str, folder: Path, rules: _CopyRules) -> None:
    root = folder.parent
    try:
        archive = upload_path(root, upload).open("rb")
    except OSError as error:
        raise Invalid.at(
            UPLOAD_POINTER,
            f"there is no {upload} in {root / UPLOADS} of the worker ({error.strerror}): it expired, or the service "
            "writes elsewhere. Put DEPUTIZE_WORKSPACE_ROOT of the service and of all workers on one volume",
        ) from None
    with archive, open_folder(folder / "files") as files, open_folder(folder / "base") as base:
        try:
            Extraction(archive, files, owner(), rules.stop, rules.max_bytes, rules.tally).run()
        except BadEntry as error:
            raise Invalid.at(UPLOAD_POINTER, f"the archive is refused: {error}") from None
        except SourceTooLarge as error:
            raise _too_large(UPLOAD_POINTER, "the archive is too large to be extracted", error, rules) from None
        _copy_base(files, base, rules)


def _copy_base(files: int, base: int, rules: _CopyRules) -> None:
    TreeCopy(files, base, lambda path, _: path.rpartition("/")[2] != ".git", stop=rules.stop).run()


def _too_large(pointer: str, what: str, error: SourceTooLarge, rules: _CopyRules) -> Invalid:
    most = f"{(rules.max_bytes or 0) / (1 << 30):.3g} GiB (raise sandbox.disk_bytes for more)"
    return Invalid.at(pointer, f"{what}: with {error.path} it has more than {most}")


def _copy(source: int, folder: Path, spec: DirectoryWorkspace, rules: _CopyRules) -> None:
    root = folder.parent.stat()
    skip = (root.st_dev, root.st_ino)  # the source may contain the workspaces themselves
    with open_folder(folder / "files") as files, open_folder(folder / "base") as base:
        real = Path(f"/proc/self/fd/{source}").readlink()
        listing = Source(source, real, skip, rules.stop, rules.go_on, release_slot)
        wanted, without_git = _wanted_paths(listing, folder, spec)
        private = rules.source.private_in(real)

        def include(path: str, is_directory: bool) -> bool:
            return path not in private and is_copied(wanted, path, is_directory)

        copy = TreeCopy(source, files, include, owner(), skip, rules.stop, rules.max_bytes, tally=rules.tally)
        copy.run()
        copy.left_out |= private
        if ((real / ".git").is_file() or (real / ".git").is_symlink()) and include(".git", False):
            copy.left_out |= _copy_linked_state(real, files, rules)
        (folder / NOT_COPIED).write_text(
            json.dumps([*without_git, *special_sentences(copy.left_out, "was not copied")]), "ascii"
        )
        write_origin(folder, real)
        _copy_base(files, base, rules)


def _copy_linked_state(source: Path, files: int, rules: _CopyRules) -> Mapping[str, str]:
    """Makes the copy of a worktree or submodule a repository of its own; returns what was left out, and what it is."""

    def copy(state: Path, target: int, is_wanted: Callable[[str], bool]) -> None:
        with open_source(str(state), rules.source) as opened:
            if Path(f"/proc/self/fd/{opened}").readlink() != state:
                raise Invalid.at("/workspace/path", f"{state} was replaced while it was copied")
            TreeCopy(
                opened,
                target,
                lambda path, _: is_wanted(path.partition("/")[0]),
                owner(),
                stop=rules.stop,
                max_bytes=rules.max_bytes,
                tally=rules.tally,
            ).run()

    with suppress(Invalid, OSError):
        if found := linked_state(source):
            copy_linked_state(*found, files, copy)
            return {}
    return {".git": "a link to a repository that git cannot reach in the run"}


def _wanted_paths(source: Source, folder: Path, spec: DirectoryWorkspace) -> tuple[Set[str] | None, list[str]]:
    """Returns the paths to copy (None: all) and a sentence where git is missing; records the rules for the run."""
    kept, missing = KeptRules(spec.ignored), list[str]()
    wanted: Set[str] | None = None
    try:
        if is_workspace(source.path, folder):
            kept = KeptRules.read(source.path.parent)
        elif not spec.ignored:
            kept = KeptRules(outer=outer_rules(source.path))
        if spec.exclude or not spec.ignored:
            wanted = listed(source, None if spec.ignored else kept.outer, spec.exclude)
    except FileNotFoundError as error:
        if spec.exclude:
            detail = f"git, which reads these patterns, is missing on the worker ({error.strerror}); install it there"
            raise Invalid.at("/workspace/exclude", detail) from None
        kept = KeptRules(everything=True)
        missing = ["files that .gitignore names were copied, too, because the worker has no git to recognize them"]
    except OSError as error:
        raise Invalid.at(
            "/workspace/path",
            f"git cannot determine which files of {spec.path} are ignored ({error.strerror or error}); simplify its "
            ".gitignore files and the patterns to exclude, or copy ignored files, too (ignored: true, --with-ignored)",
        ) from None
    kept.write(folder)
    return wanted, missing


def check_writable(root: Path) -> None:
    """Raises ``Misconfigured`` with a remedy if workspaces cannot be created below ``root``. Waits for a full disk."""
    try:
        FullDisk(root).with_room(_try_to_write, root)
    except OSError as error:
        user = f"user {os.getuid()}, group {os.getgid()}"
        raise Misconfigured(
            exhausted(error)
            or f"workspaces cannot be created in {root}: {error.strerror} for {user}. Let that user write there "
            f"(chown {os.getuid()} {root}, or fsGroup on Kubernetes), or set DEPUTIZE_WORKSPACE_ROOT to another folder"
        ) from None


def _try_to_write(root: Path) -> None:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    probe = root / f"selftest-{secrets.token_hex(4)}"
    probe.mkdir()
    probe.rmdir()
