"""The files of a run without a model: those from its start, with the changes of results laid over them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...shared.facts import MergeConflict
from ...shared.patches.directory import FOLDER, Directory
from ...shared.patches.siblings import Side, merged
from ..sandbox.full_disk import FullDisk
from ..threads import run_in_thread
from .workspace import Workspace


async def lay_out(workspace: Workspace, sides: Sequence[Side], paths: Collection[str]) -> Sequence[MergeConflict]:
    """Makes the files those from the start with the changes of these results. Returns what excludes each other.

    ``paths`` are those that any result changes, which may have been laid out before.
    """
    return await run_in_thread(FullDisk(workspace.path).with_room, _replace_files, workspace, sides, paths)


def _replace_files(workspace: Workspace, sides: Sequence[Side], paths: Collection[str]) -> Sequence[MergeConflict]:
    with Directory(workspace.base) as base, Directory(workspace.path) as files:
        plan, conflicts = merged(base, sides)
        before = {path: base.read(path) for path in paths}
        unchanged = {path: None if state and state.mode == FOLDER else state for path, state in before.items()}
        files.replace({**unchanged, **plan.states})
        return conflicts
