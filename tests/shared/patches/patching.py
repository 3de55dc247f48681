"""Patches of single files as the worker writes them, and repositories in which git itself applies them."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path

from deputize.shared.patch_format import parse_patch
from deputize.shared.patches.directory import Directory
from deputize.shared.patches.merge import MergePlan, content_in_git
from deputize.worker.workspace.manifest import Content, Difference
from deputize.worker.workspace.patches import file_patch
from tests.worker.workspace.trees import GIT


def patch_of(path: str, old: bytes | None, new: bytes | None, source: str | None = None, mode: str = "100644") -> str:
    def content(data: bytes | None, mode: str) -> Content | None:
        return None if data is None else Content(mode, sha256(data).hexdigest())

    difference = Difference(path, content(old, "100644"), content(new, mode), source)
    return file_patch(difference, old or b"", new or b"").text


def planned(folder: Path, patch: str, *, reverse: bool = False) -> MergePlan:
    """The plan, written unless something is refused."""
    parts = parse_patch(patch)
    with Directory(folder) as target:
        plan = MergePlan(target, lambda blob: content_in_git(folder, blob))
        plan.add([part.reversed() for part in reversed(parts)] if reverse else parts)
        if not plan.refused:
            plan.write()
    return plan


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> int:
    command = ["git", "-C", str(folder), "-c", "core.autocrlf=false", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, env=GIT).returncode
