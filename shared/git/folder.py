"""Where a folder's repository keeps git's state, and that nothing of this state leads elsewhere.

The folder may be untrusted, with each file of its state. git itself would follow each link and each file that
names another place, and it takes a folder of ordinary files for a repository where they are named like its state.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import RepositoryFailed
from .command import git_directory, read_regular, shared_by_worktrees

_READ = (
    "HEAD",
    "commondir",
    "config",
    "config.worktree",
    "info",
    "objects",
    "packed-refs",
    "refs",
    "reftable",
    "shallow",
)
"""What git reads of a state."""
_HEAD = re.compile(rb"(?:ref:\s*refs/[^\0\n]+|[0-9a-f]{40}(?:[0-9a-f]{24})?)\s*")
MAX_ENTRIES = 1_000_000
_MAX_BYTES = 1 << 16


def state_of(folder: Path, check: Callable[[Path], object], most: int = MAX_ENTRIES) -> Path:
    """Returns where the repository of a folder keeps its state: in ``.git``, or, if it is a bare one, in itself.

    Args:
        folder: Its path, without links.
        check: Is called with each place that git would read, and raises for one that it may not.
        most: Files and folders of a state; one with more is refused.

    Raises RepositoryFailed for a folder without a repository, and for a state that names other places than git needs.
    """
    link = folder / ".git"
    state = (git_directory(folder) if os.path.lexists(link) else folder).resolve()
    check(state)
    shared = shared_by_worktrees(state).resolve()
    check(shared)
    if not _is_state(state, shared):
        raise RepositoryFailed("repository_not_found", f"{folder} is not a git repository of this machine")
    if shared != state and not (link.is_file() and state.parent == shared / "worktrees"):
        raise _refusal(folder, f"its commondir names {shared}, and only a worktree may share the state of another one")
    if os.path.lexists(state / ".git"):
        raise _refusal(folder, f"git would look for its state in {state / '.git'}")
    walk = _Walk(folder, check, most)
    for each in {state, shared}:
        walk.add(*(each / name for name in _READ))
    walk.run()
    return state


def _is_state(state: Path, shared: Path) -> bool:
    """Whether git takes this for a state. Where it does not, it looks for one beside it."""
    head = state / "HEAD"
    if head.is_symlink() and not str(head.readlink()).startswith("refs/"):
        return False
    is_head = _HEAD.fullmatch(read_regular(head, _MAX_BYTES)) is not None
    return is_head and all(os.access(shared / name, os.X_OK) for name in ("objects", "refs"))


def _refusal(folder: Path, why: str) -> RepositoryFailed:
    return RepositoryFailed("repository_forbidden", f"{folder} is not used as a repository: {why}")


@dataclass(slots=True)
class _Walk:
    """Visits all that git may read of a state, also through links and alternates."""

    folder: Path
    check: Callable[[Path], object]
    most: int
    _open: list[Path] = field(default_factory=list[Path])
    _seen: set[Path] = field(default_factory=set[Path])
    _entries: int = 0

    def add(self, *paths: Path) -> None:
        """Adds paths that may be links, and may be missing."""
        for path in paths:
            real = path.resolve()
            if real != path:
                self.check(real)
            if real.is_dir() and real not in self._seen:
                self._seen.add(real)
                self._open.append(real)
            elif os.path.lexists(real) and not (real.is_dir() or real.is_file()):
                raise _refusal(self.folder, f"{path} is neither a file nor a folder, and git would wait for it")

    def run(self) -> None:
        """Visits what was added, and all below. Raises RepositoryFailed."""
        while self._open:
            folder = self._open.pop()
            try:
                with os.scandir(folder) as entries:
                    self.add(*(Path(each.path) for each in entries if self._counts(each)))
                self._add_alternates(folder)
            except OSError as error:
                raise _refusal(self.folder, f"{folder} cannot be read: {error.strerror}") from None

    def _counts(self, entry: os.DirEntry[str]) -> bool:
        """Whether an entry may lead to others: a plain file does not."""
        self._entries += 1
        if self._entries > self.most:
            raise _refusal(self.folder, f"its state has more than {self.most:,} files")
        return not entry.is_file(follow_symlinks=False)

    def _add_alternates(self, objects: Path) -> None:
        """Adds the further places of objects that a folder of objects names."""
        file = objects / "info/alternates"
        named = read_regular(file, _MAX_BYTES)
        if not named and file.is_file() and file.stat().st_size:
            raise _refusal(self.folder, f"{file} cannot be read, or is too large")
        for line in named.split(b"\n"):
            if line.startswith(b'"') or b"\0" in line:
                raise _refusal(self.folder, f"{file} has a path in quotes")
            if line and not line.startswith(b"#"):
                place = objects / os.fsdecode(line)
                for each in {place, Path(os.path.normpath(place))}:  # git removes `..` before it follows links
                    self.check(each.resolve())
                    self.add(each)
