"""Checks of files: that one exists, holds something or has a digest, and what must have changed or must not have."""

from __future__ import annotations

import hashlib

import regex

from ...shared.checks import ChangedCheck, FileCheck, UnchangedCheck
from ...shared.patch_format import printable_path
from ..text.compute_limit import ComputeLimit
from ..workspace.workspace import Changed
from .grounds.ground import changes_by_path, content_of
from .protected.paths import Globs
from .runners.execution import Observed

MAX_FILE_BYTES = 64 << 20
MATCH_SECONDS = 1.0


def checked_files(changed: Changed, item: FileCheck | UnchangedCheck | ChangedCheck) -> tuple[Observed, Observed]:
    """Returns the states before the run's changes and with them. Blocks."""
    match item:
        case FileCheck():
            return _file(changed, item, now=False), _file(changed, item, now=True)
        case UnchangedCheck():
            paths = [path for path in _changed_paths(changed) if Globs(item.paths).match(path)]
            wrong = f"changed: {', '.join(map(printable_path, paths[:20]))}" if paths else ""
            return Observed("green"), _state(wrong)
        case ChangedCheck():
            paths = _changed_paths(changed)
            missing = [glob for glob in item.paths if not any(map(Globs([glob]).match, paths))]
            return Observed("red", output="nothing is changed"), _state(
                f"no change matches {', '.join(missing)}" if missing else ""
            )


def _state(wrong: str) -> Observed:
    return Observed("red", output=wrong) if wrong else Observed("green")


def _changed_paths(changed: Changed) -> list[str]:
    return [path for each in changed.differences for path in (each.source, each.path) if path]


def _file(changed: Changed, item: FileCheck, *, now: bool) -> Observed:
    there, content = content_of(changed, changes_by_path(changed, now=now), item.path, MAX_FILE_BYTES)
    if item.exists is False:
        return _state(f"{item.path} exists" if there else "")
    if not there:
        return _state(f"there is no file {item.path}")
    if item.matches is None and item.sha256 is None:
        return Observed("green")
    if content is None:
        return Observed("unknown", why=f"{item.path} has more than {MAX_FILE_BYTES:,} bytes")
    if item.sha256 and hashlib.sha256(content).hexdigest() != item.sha256:
        return _state(f"{item.path} has another digest")
    if item.matches is None:
        return Observed("green")
    try:
        found = ComputeLimit(MATCH_SECONDS).search(regex.compile(item.matches), content.decode("utf-8", "replace"))
    except (TimeoutError, regex.error) as error:
        return Observed("unknown", why=str(error))
    return _state("" if found else f"{item.path} does not match")
