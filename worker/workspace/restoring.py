"""A workspace as another one was at its start, or is at its end: for a continuation, and a retry from a turn."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from threading import Event

from ...shared.errors import Conflict
from ...shared.libc import beneath
from ...shared.runs.record import files_gone
from ..sandbox.environment import owner
from .generation import Generation, is_complete, moved_start
from .manifest import StatEntry, git_folder, is_refreshed, read_content, scan
from .removal import in_use
from .source import closing_fd, open_folder, write_new
from .tree_copy import CopyTally, TreeCopy

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_GIT_FILE = 4096


def restore(earlier: Path, folder: Path, stop: Event, *, at_start: bool, tally: CopyTally) -> None:
    """Fills the new workspace in ``folder``, whose directories are empty, from the one in ``earlier``.

    Its changes are counted from the start of the earlier one, so that its patch has all of them. Raises ``Conflict``
    where the files are gone, or git's state at the start is.
    """
    latest, new = Generation.latest(earlier), Generation(folder, 1)
    if latest is None:
        raise Conflict(files_gone(earlier.name))
    for beside in earlier.iterdir():
        if beside.is_file() and not beside.name.startswith(("start.json", "making.")):
            shutil.copyfile(beside, folder / beside.name)
    start = {path: StatEntry(*entry) for path, entry in json.loads(latest.start.read_text("ascii")).items()}
    with (
        in_use(earlier),
        open_folder(earlier / "base") as base,
        open_folder(latest.files) as files,
        open_folder(folder / "base") as new_base,
        open_folder(new.files) as new_files,
    ):
        TreeCopy(base, new_base, stop=stop).run()
        before = scan(files)
        if at_start:
            TreeCopy(base, new_files, owner=owner(), stop=stop, tally=tally).run()
            _copy_git(files, new_files, start, before, earlier.name)
            return
        TreeCopy(files, new_files, is_complete, owner=owner(), stop=stop, tally=tally).run()
        new.start.write_text(json.dumps(moved_start(start, before, scan(new_files))), "ascii")


def _copy_git(files: int, target: int, start: dict[str, StatEntry], now: dict[str, StatEntry], earlier: str) -> None:
    """Copies each ``.git``, which the copy from the start lacks."""
    for path in start.keys() | now.keys():
        old, new = start.get(path), now.get(path)
        if git_folder(path) and old != new and not is_refreshed(path, old, new):
            raise Conflict(
                f"the run of {earlier} changed the git repository in its files ({path[:200]}), and the state before "
                f"is not kept; `deputize retry {earlier}` starts from the beginning"
            )
    for path in sorted({folder for each in start if (folder := git_folder(each))}):
        above, _, name = path.rpartition("/")
        with closing_fd(beneath(target, above or ".", _FOLDER, links=False)) as parent:
            if path in start:  # a file that names a repository elsewhere
                write_new(parent, name, read_content(files, path, start[path], _MAX_GIT_FILE) or b"")
            else:
                _copy_folder(files, path, parent, name)


def _copy_folder(files: int, path: str, parent: int, name: str) -> None:
    os.mkdir(name, 0o755, dir_fd=parent)
    with (
        closing_fd(beneath(files, path, _FOLDER, links=False)) as source,
        closing_fd(beneath(parent, name, _FOLDER, links=False)) as target,
    ):
        if uid_gid := owner():
            os.fchown(target, *uid_gid)
        TreeCopy(source, target, owner=owner()).run()
