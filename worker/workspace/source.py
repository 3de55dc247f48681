"""The directory that a workspace is a copy of: opened where it may be copied, recorded, with git's state elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ...shared.errors import Invalid
from ...shared.git import git, git_directory, read_regular, repository_of, shared_state
from ...shared.libc import closing_fd, is_on_local_disk
from ...shared.listed import OuterRules
from ...shared.workspaces import IS_PRIVATE, is_in_one
from ..sandbox.environment import owner
from .removal import in_use

_NOT_COPIED = {
    Path("/"): "the root of the file system",
    **dict.fromkeys((Path("/proc"), Path("/sys")), "a virtual file system of the kernel"),
}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FEW_FILES, _FEW_BYTES = 8, 256 * 1024
"""What is copied in less time than a thread takes beside a busy event loop."""
_ORIGIN = "origin"
_KEPT = "ignored.json"
_MAX_CONFIG_BYTES = 1 << 20
_MAX_LINK_BYTES = 4096
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_CONFIGS = ("config", "config.worktree")
_HERE = b"\n[core]\n\tbare = false\n\tworktree = ..\n"
"""Ends a copied configuration: it may name another place, or come from a bare repository with worktrees."""
_SHARED = ("config", "hooks", "info", "objects", "packed-refs", "refs", "shallow")
"""What all worktrees of a repository have in common and a copy needs."""
_NOT_PRIVATE = ("commondir", "config", "gitdir", "info", "locked", "logs", "modules", "refs")

StateCopy = Callable[[Path, int, Callable[[str], bool]], None]
"""Copies the entries of a directory that the function names into the directory of the descriptor."""


@dataclass(frozen=True, slots=True)
class SourceRules:
    """Which directories may be copied. ``allowed`` are their roots, None for all; ``private`` is the worker's own."""

    allowed: Sequence[Path] | None = None
    private: Sequence[Path] = ()

    def check(self, path: str, real: Path) -> None:
        """Raises Invalid for a directory that may not be copied."""
        for top, what in _NOT_COPIED.items():
            if real == top or (top != Path("/") and real.is_relative_to(top)):
                detail = f"{path} cannot be copied: it is {what}; use a directory with the files to work on"
                raise Invalid.at("/workspace/path", detail)
        roots = None if self.allowed is None else [each.resolve() for each in self.allowed]
        if roots is not None and not any(real.is_relative_to(each) for each in roots):
            where = ", ".join(map(str, roots)) or "no directory (set DEPUTIZE_WORKSPACE_SOURCES)"
            raise Invalid.at("/workspace/path", f"{path} may not be copied; allowed: {where}")
        if is_in_one(real, self.private):
            raise Invalid.at("/workspace/path", f"{path} {IS_PRIVATE}")

    def private_in(self, real: Path) -> Mapping[str, str]:
        """Returns what of a directory is not copied: secrets of this worker, in any file that it reads them from."""
        places = [Path(os.path.realpath(path)) for path in self.private]
        inner = [path for path in places if real in path.parents and path.exists()]
        return {str(path.relative_to(real)): "private to the worker" for path in inner}


@contextmanager
def open_source(path: str, rules: SourceRules) -> Generator[int]:
    """Opens the source directory. The open directory is checked, not its path, which may change at any time."""
    if not Path(path).is_absolute():
        raise Invalid.at("/workspace/path", f"{path} is not absolute, and the worker has another working directory")
    try:
        fd = os.open(path, _FOLDER)
    except OSError as error:
        raise Invalid.at("/workspace/path", f"{path} cannot be opened as a directory: {error.strerror}") from None
    with closing_fd(fd):
        real = Path(f"/proc/self/fd/{fd}").readlink()
        rules.check(path, real)
        yield fd


@contextmanager
def held_source(path: str, source: int, folder: Path) -> Generator[None]:
    """Keeps the open source from being deleted while it is copied to ``folder``, if it is another workspace's files."""
    real = Path(f"/proc/self/fd/{source}").readlink()
    if not is_workspace(real, folder):
        yield
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(in_use(real.parent))
        except FileNotFoundError:
            raise Invalid.at("/workspace/path", f"{path} was removed before it could be copied") from None
        yield


@contextmanager
def open_folder(folder: Path) -> Generator[int]:
    """Yields a descriptor of the directory."""
    with closing_fd(os.open(folder, _FOLDER)) as fd:
        yield fd


def is_small(source: Path | None, folder: Path) -> bool:
    """Whether ``folder`` does not exist yet, and all that is copied to it are few files, of one local disk to another.

    That is copied without a wait: neither for git, nor for the removal of another workspace. None stands for no source.
    """
    if not _is_local(folder.parent) or folder.exists():
        return False
    if source is None:
        return True
    with suppress(OSError), open_folder(source) as fd, os.scandir(fd) as entries:
        real = Path(f"/proc/self/fd/{fd}").readlink()
        if not is_on_local_disk(fd) or is_workspace(real, folder) or repository_of(real):
            return False
        found = [*islice(entries, _FEW_FILES + 1)]
        are_plain = all(each.is_file(follow_symlinks=False) and each.name != ".gitignore" for each in found)
        return len(found) <= _FEW_FILES and are_plain and sum(each.stat().st_size for each in found) <= _FEW_BYTES
    return False


def _is_local(folder: Path) -> bool:
    with suppress(OSError), open_folder(folder) as fd:
        return is_on_local_disk(fd)
    return False


def write_new(folder: int, name: str, data: bytes) -> None:
    """Writes a new file of the workspace's owner into the directory of the descriptor."""
    with closing_fd(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder)) as fd:
        if uid_gid := owner():
            os.fchown(fd, *uid_gid)
        os.write(fd, data)


def write_origin(folder: Path, source: Path) -> None:
    """Records where the files in a workspace's new ``folder`` come from.

    A copy of another workspace, for a child delegation, comes from where that one does.
    """
    origin = read_origin(source.parent) if is_workspace(source, folder) else source
    if origin:
        (folder / _ORIGIN).write_bytes(os.fsencode(origin))


def is_workspace(source: Path, folder: Path) -> bool:
    """Whether the source is the files of another workspace beside the one in ``folder``."""
    return source.parent.parent == folder.parent.resolve()


def read_origin(folder: Path) -> Path | None:
    """Returns the directory that a workspace's first files came from; None for an empty workspace."""
    try:
        return Path(os.fsdecode((folder / _ORIGIN).read_bytes()))
    except FileNotFoundError:
        return None


def linked_state(folder: Path) -> tuple[Path, Path] | None:
    """Returns where a worktree or submodule keeps its state, and where what it has in common with other worktrees.

    None where these are not elsewhere, or do not name the folder as theirs: an untrusted link would bring any other
    repository into the workspace.
    """
    link, state = folder / ".git", git_directory(folder).resolve()
    common = shared_state(folder).resolve()
    if link.is_symlink() or not link.is_file():
        return None
    if back := os.fsdecode(read_regular(state / "gitdir", _MAX_LINK_BYTES).strip()):
        is_ours = (state / back).resolve() == link.resolve() and state.parent == common / "worktrees"
    else:
        text = read_regular(state / "config", _MAX_CONFIG_BYTES)
        named = git("config", "--file", "-", "--get", "core.worktree", input=text).stdout.rstrip(b"\n")
        is_ours = bool(named) and (state / os.fsdecode(named)).resolve() == folder.resolve() and state == common
    return (state, common) if is_ours else None


def copy_linked_state(state: Path, common: Path, files: int, copy: StateCopy) -> None:
    """Replaces the link ``.git`` in the copy of a linked folder by a directory with the repository's state."""
    os.unlink(".git", dir_fd=files)
    os.mkdir(".git", 0o755, dir_fd=files)
    with closing_fd(os.open(".git", _FOLDER | os.O_NOFOLLOW, dir_fd=files)) as target:
        if uid_gid := owner():
            os.fchown(target, *uid_gid)
        copy(state, target, lambda name: state == common or name not in _NOT_PRIVATE)
        if state != common:
            copy(common, target, lambda name: name in _SHARED)
        for name in _CONFIGS:
            with suppress(OSError), closing_fd(os.open(name, _FILE, dir_fd=target)) as fd:
                text = os.read(fd, _MAX_CONFIG_BYTES)
                os.unlink(name, dir_fd=target)
                write_new(target, name, text + _HERE)


@dataclass(frozen=True, slots=True)
class KeptRules:
    """What is recorded beside a copy: whether ignored files count as any other, and rules from elsewhere.

    ``cloned``: changes of git's own state do not count, because commits of the agent are not delivered.
    """

    everything: bool = False
    outer: OuterRules = ()
    cloned: bool = False

    def write(self, folder: Path) -> None:
        (folder / _KEPT).write_text(json.dumps([self.everything, self.outer, self.cloned]), "ascii")

    @classmethod
    def read(cls, folder: Path) -> KeptRules:
        """Reads what was recorded beside a workspace; nothing for an empty one."""
        try:
            return cls(*json.loads((folder / _KEPT).read_text("ascii")))
        except FileNotFoundError:
            return cls()
