"""The changes of a step, for its event: the changed paths and a diff of texts, both bounded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...shared.facts import StepChange
from ...shared.patch_format import printable_path
from ...shared.text import CUT_NOTE
from .file_entries import is_private
from .manifest import DIRECTORY, Content, Difference, git_folder, join_renames, read_content
from .objects import Objects
from .patches import FilePatch, change_of, file_patch, is_text, quote_path
from .snapshots import Kept, Snapshots

MAX_CHANGES = 100
MAX_DIFF_CHARS = 8000
_MAX_FILE_BYTES = 256 * 1024
_MAX_READ_BYTES = 2 * 1024 * 1024
"""Of all contents together."""
_GIT = Content(DIRECTORY, None)


@dataclass(frozen=True, slots=True)
class StepChanges:
    """The first changes of a step, how many more there are, and a diff of those that are texts."""

    changes: list[StepChange]
    more: int
    diff: str

    @property
    def fields(self) -> dict[str, Any]:
        """Returns the fields of the step."""
        return {"changes": self.changes, "more_changes": self.more, "diff": self.diff or None}


@dataclass(slots=True)
class StepComparison:
    """Compares the files before a run's last step with those after it, as its snapshots hold them."""

    snapshots: Snapshots
    objects: Objects
    base: int
    _left: int = _MAX_READ_BYTES

    def run(self, mask: Callable[[str], str]) -> StepChanges | None:
        """Returns what the step changed, None if nothing. ``mask`` hides secrets, before anything is cut."""
        history = self.snapshots.history
        paths = dict.fromkeys(git_folder(path) or path for path in history.of_step)
        paths = [path for path in paths if not is_private(path)]
        texts: dict[tuple[str, bool], bytes | None] = {}
        found: list[Difference] = []
        for path in paths[:MAX_CHANGES]:
            old, texts[path, True] = self._before(path)
            new, texts[path, False] = self._kept(history.state[path]) if path in history.state else (_GIT, None)
            if old != new or new is _GIT or (new and new.sha256 is None):
                found.append(Difference(path, old, new))
        changes, diff = list[StepChange](), ""
        for each in join_renames(found):
            part = _part(each, texts[each.source or each.path, True], texts[each.path, False])
            changes.append(_change(each, part))
            diff += part.text if part else f"# not shown: {quote_path('', each.path)}\n"
        return StepChanges(changes, max(0, len(paths) - MAX_CHANGES), _bounded(mask(diff))) if changes else None

    def _before(self, path: str) -> tuple[Content | None, bytes | None]:
        replaced = self.snapshots.history.replaced
        if path in replaced:
            return self._kept(replaced[path])
        entry = self.snapshots.base.get(path)
        if entry is None:
            return (_GIT, None) if git_folder(path) else (None, b"")
        data = read_content(self.base, path, entry, self._room(entry.size))
        return Content(entry.git_mode, hashlib.sha256(data).hexdigest() if data is not None else None), data

    def _kept(self, kept: Kept | None) -> tuple[Content | None, bytes | None]:
        if kept is None:
            return None, b""
        content = Content(kept.git_mode, kept.sha256)
        if kept.sha256 is None or kept.size > self._room(kept.size):
            return content, None
        return content, self.objects.path(kept.sha256).read_bytes()

    def _room(self, size: int) -> int:
        """Returns how many bytes of a file of that size may be read."""
        room = min(_MAX_FILE_BYTES, self._left)
        self._left -= size if size <= room else 0
        return room


def _part(each: Difference, old: bytes | None, new: bytes | None) -> FilePatch | None:
    """Returns the part of the diff for one path; None for what is not text, or too large."""
    if old is None or new is None or not (is_text(old) and is_text(new)):
        return None
    return file_patch(each, old, new)


def _change(each: Difference, part: FilePatch | None) -> StepChange:
    lines = {"added": part.added, "removed": part.removed} if part else {}
    source = {"from": printable_path(each.source)} if each.source else {}
    return StepChange.model_validate({"path": printable_path(each.path), "change": change_of(each), **source, **lines})


def _bounded(diff: str) -> str:
    """Returns the first lines of a diff that is too long."""
    if len(diff) <= MAX_DIFF_CHARS:
        return diff
    kept = diff[: diff.rfind("\n", 0, MAX_DIFF_CHARS) + 1]
    return f"{kept}{CUT_NOTE}{len(diff):,} characters]\n"
