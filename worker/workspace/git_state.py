"""A copy of the state of git that a worktree or submodule keeps elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...shared.git import git, git_directory, read_regular, shared_state
from ..sandbox.environment import owner
from .source import closing_fd, write_new

_MAX_CONFIG_BYTES = 1 << 20
_MAX_LINK_BYTES = 4096
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_CONFIGS = ("config", "config.worktree")
_HERE = b"\n[core]\n\tbare = false\n\tworktree = ..\n"
"""Ends a copied configuration: it may name another place, or come from a bare repository with worktrees."""
_SHARED = ("config", "hooks", "info", "objects", "packed-refs", "refs", "shallow")
"""What all worktrees of a repository have in common and a copy needs."""
_NOT_PRIVATE = ("commondir", "config", "gitdir", "info", "locked", "logs", "modules", "refs")

StateCopy = Callable[[Path, int, Callable[[str], bool]], None]
"""Copies the entries of a directory that the function names into the directory of the descriptor."""


def linked_state(folder: Path) -> tuple[Path, Path] | None:
    """Returns where a worktree or submodule keeps its state, and where what it has in common with other worktrees.

    None where these are not elsewhere, or do not name the folder as theirs: a stranger's link would bring anybody's
    repository into the workspace.
    """
    link, state = folder / ".git", git_directory(folder).resolve()
    common = shared_state(folder).resolve()
    if link.is_symlink() or not link.is_file():
        return None
    if back := os.fsdecode(read_regular(state / "gitdir", _MAX_LINK_BYTES).strip()):
        is_ours = (state / back).resolve() == link.resolve() and state.parent == common / "worktrees"
    else:
        named = git("config", "--file", state / "config", "--get", "core.worktree").stdout.rstrip(b"\n")
        is_ours = bool(named) and (state / os.fsdecode(named)).resolve() == folder.resolve() and state == common
    return (state, common) if is_ours else None


def copy_linked_state(state: Path, common: Path, files: int, copy: StateCopy) -> None:
    """Replaces the link ``.git`` in the copy of a linked folder by a directory with the repository's state."""
    os.unlink(".git", dir_fd=files)
    os.mkdir(".git", 0o755, dir_fd=files)
    with closing_fd(os.open(".git", _FOLDER, dir_fd=files)) as target:
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
