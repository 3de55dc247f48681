"""What several results changed in one tree, as their patches have it, and the merge of them written out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from deputize.shared.facts import MergeConflict
from deputize.shared.patch_format import parse_patch
from deputize.shared.patches.directory import Directory
from deputize.shared.patches.siblings import Side, merged
from deputize.worker.workspace.manifest import Content, Difference, join_renames
from deputize.worker.workspace.patches import file_patch
from tests.worker.workspace.trees import plant, tree

Tree = Mapping[str, bytes | tuple[str, bytes]]
"""Contents by path; with a kind (file, program or link) where it is no file."""
Change = Mapping[str, bytes | tuple[str, bytes] | None]
"""What one side makes of a path; None deletes it."""
_MODES = {"file": "100644", "program": "100755", "link": "120000"}


def whole(files: Tree) -> dict[str, tuple[str, bytes]]:
    return {path: ("file", each) if isinstance(each, bytes) else each for path, each in files.items()}


def changed(base: Tree, change: Change) -> dict[str, tuple[str, bytes]]:
    """The base with one side's changes."""
    kept = {path: each for path, each in base.items() if path not in change}
    return whole(kept | {path: each for path, each in change.items() if each is not None})


def side(id: str, base: Tree, change: Change) -> Side:
    """The side as the worker's comparison of two trees has it, renames included."""
    before, after = whole(base), changed(base, change)

    def content(where: Mapping[str, tuple[str, bytes]], path: str) -> Content | None:
        if path not in where:
            return None
        kind, data = where[path]
        return Content(_MODES[kind], sha256(data).hexdigest())

    found = [Difference(path, content(before, path), content(after, path)) for path in sorted(before | after)]
    joined = join_renames([each for each in found if each.old != each.new])
    parts = [
        file_patch(each, before.get(each.source or each.path, ("", b""))[1], after.get(each.path, ("", b""))[1]).text
        for each in joined
    ]
    return Side(id, parse_patch("".join(parts)))


def merge(folder: Path, base: Tree, sides: Sequence[Side]) -> tuple[dict[str, tuple[str, bytes]], list[MergeConflict]]:
    """The merged tree, or the base where there are conflicts; and these."""
    plant(folder, whole(base))
    with Directory(folder) as target:
        plan, conflicts = merged(target, sides)
        assert bool(plan.refused) == bool(conflicts)
        if not conflicts:
            plan.write()
    return tree(folder), conflicts


def pairs(conflicts: Sequence[MergeConflict]) -> set[frozenset[str]]:
    return {frozenset(each.id for each in conflict.sides) for conflict in conflicts}


def odd(name: bytes) -> str:
    return os.fsdecode(name)
