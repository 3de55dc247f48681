"""The merge of changes into a directory that others may have changed since: planned as a whole, then written."""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import Unavailable
from ..git import git, repository_of
from ..patch_format import PatchPart, blob_id
from .directory import FOLDER, LINK, Directory, FileState

MASKED = "the patch holds something else than the run's file, probably because a secret in it was masked"
OUT_OF_REACH = "it was changed here since, and its content before the run, which a merge needs, cannot be fetched"
_FAILED = 128
"""From this exit code on `git merge-file` has failed; below it is the number of conflicts."""
FindContent = Callable[[str], bytes | None]
"""Returns the content with git's id; None where it is not known."""


class CannotApply(Exception):
    """One path cannot take the run's change; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The change of one path: ``verb`` as in ``created``, and whether the directory's own changes were kept."""

    verb: str
    path: str
    merged: bool = False


@dataclass(slots=True)
class MergePlan:
    """What applying the parts would do. Nothing is written before ``write``, and nothing at all if any is refused."""

    directory: Directory
    find: FindContent = lambda _: None
    applied: list[Planned] = field(default_factory=list[Planned])
    already: list[str] = field(default_factory=list[str])
    """Paths that have the run's content already."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """Why a path cannot be changed without losing other work."""
    _states: dict[str, FileState | None] = field(default_factory=dict[str, FileState | None])
    _folders: set[str] = field(default_factory=set[str])
    """Those in which something is planned."""

    @property
    def links_out(self) -> dict[str, str]:
        """The planned links that lead out of the directory, with their targets."""
        links = {path: os.fsdecode(state.data) for path, state in self._states.items() if state and state.mode == LINK}
        ends = {path: posixpath.normpath(posixpath.join(posixpath.dirname(path), links[path])) for path in links}
        return {
            path: links[path] for path, end in sorted(ends.items()) if end.startswith("/") or f"{end}/"[:3] == "../"
        }

    def add(self, parts: Sequence[PatchPart], earlier: Sequence[PatchPart] = ()) -> None:
        """Plans the parts of a patch.

        ``earlier`` are the parts of patches before it from the same start, the last one first: what is here of these is
        taken back first, so that they may have been applied or not.
        """
        for part in sorted(earlier, key=lambda part: not self._is_here(part)):
            if not {part.old_path, part.new_path} & self._states.keys():
                self._take_back(part)
        self.applied.clear()
        self.already.clear()
        for part in parts:
            self.take(part)
        if earlier and not self.refused:
            self._compare({part.old_path for part in parts})

    def take(self, part: PatchPart) -> bool:
        """Plans one part over what is planned; returns whether it fits. Parts of several patches go by ``order``."""
        try:
            self._plan(part)
        except CannotApply as error:
            self.refused.setdefault(part.path, str(error))
        except OSError as error:
            self.refused.setdefault(part.path, f"it cannot be read: {error.strerror}")
        else:
            return True
        return False

    @property
    def states(self) -> Mapping[str, FileState | None]:
        """The planned state of every path that changes; None for one that goes."""
        return self._states

    def _is_here(self, part: PatchPart) -> bool:
        """Whether the path is exactly as the part left it."""
        with suppress(OSError):
            there = self.directory.read(part.path)
            return there is None if part.new_path is None else there is not None and there.id == part.new_id
        return False

    def _take_back(self, part: PatchPart) -> None:
        """Plans the state before a part, where what it made is here."""
        with suppress(CannotApply, OSError):
            self._plan(part.reversed())
            touched = {part.old_path, part.new_path}
            self._states = {
                path: state
                for path, state in self._states.items()
                if path not in touched or self.directory.read(path) != state
            }

    def _compare(self, sources: Set[str | None]) -> None:
        """Leaves out what is here already, and names what only an earlier patch changed; ``sources`` are renamed."""
        planned = {each.path for each in self.applied}
        here = {path: None for path, state in self._states.items() if self.directory.read(path) == state}
        for path in here:
            del self._states[path]
        self.already += [path for path in here if path in planned]
        self.applied = [each for each in self.applied if each.path not in here]
        self.applied += [
            Planned("deleted" if state is None else "modified", path)
            for path, state in self._states.items()
            if path not in planned and path not in sources
        ]

    def unknown_contents(self, parts: Sequence[PatchPart]) -> list[tuple[str, bool]]:
        """Returns the path, and whether it is the old one, of each content that is needed besides the patch's."""
        needed: list[tuple[str, bool]] = []
        for part in parts:
            if part.old_path and part.new_path and part.old_id and self._is_changed(part):
                needed.append((part.old_path, True))
            elif part.new_path and part.new_id and part.binary and part.literal is None:
                needed.append((part.new_path, False))
        return needed

    def _is_changed(self, part: PatchPart) -> bool:
        try:
            there = self.directory.read(part.old_path or "")
        except OSError:
            return False
        return there is not None and there.is_file and there.id not in (part.old_id, part.new_id)

    def write(self) -> None:
        """Writes everything planned. Raises OSError."""
        self.directory.replace(self._states)

    def _plan(self, part: PatchPart) -> None:
        if part.new_path is None:
            self._delete(part, part.path)
            return
        for folder in folders_of(part.path):
            there = self._state(folder)
            if there is not None and there.mode != FOLDER:
                raise CannotApply(f"its folder {folder} is {there.name} here")
        if part.old_path is None:
            self._create(part, part.path)
        else:
            self._modify(part, part.old_path, part.path)

    def _delete(self, part: PatchPart, path: str) -> None:
        there = self._state(path)
        if there is None:
            self.already.append(path)
            return
        same_kind = (there.mode == LINK) == (part.old_mode == LINK) and there.mode in (LINK, "100644", "100755")
        if not same_kind or (there.id != part.old_id if part.old_id else part.result(there.data) != b""):
            raise CannotApply("it was changed here since, and the run deleted it")
        self._set(path, None, Planned("deleted", path))

    def _create(self, part: PatchPart, path: str) -> None:
        wanted = FileState(part.new_mode or "100644", self._new_content(part, b""))
        there = self._state(path)
        if there is not None and (there.mode == LINK, there.data) == (wanted.mode == LINK, wanted.data):
            self.already.append(path)
        elif there is not None:
            raise CannotApply(f"{there.name} is here already, and the run created it with another content")
        else:
            self._set(path, wanted, Planned("created", path))

    def _modify(self, part: PatchPart, source: str, path: str) -> None:
        renamed, there = source != path, self._state(source)
        if (there is None or not renamed) and self._has_new(part):
            self.already.append(path)
            return
        if there is None:
            raise CannotApply(f"{source} is not here any more")
        if renamed:
            self._put(source, None)  # the new path may be the folder that it was in
        if renamed and (blocking := self._state(path)) is not None:
            raise CannotApply(f"{blocking.name} is here already, and the run renamed {source} to it")
        if (there.mode == LINK) != (LINK in (part.old_mode, part.new_mode)) or there.mode == FOLDER:
            raise CannotApply(f"it is {there.name} here now")
        data, same = self._modified(part, there)
        mode = part.new_mode if part.new_mode != part.old_mode and part.new_mode else there.mode
        if not renamed and (data, mode) == (there.data, there.mode):
            self.already.append(path)
            return
        verb = f"renamed {source} →" if renamed else "modified"
        self._set(path, FileState(mode, data), Planned(verb, path, merged=not same))

    def _modified(self, part: PatchPart, there: FileState) -> tuple[bytes, bool]:
        """Returns the content to write, and whether nothing else had changed the file."""
        if not (part.hunks or part.binary) or there.id == part.new_id:
            return there.data, True
        if there.id == part.old_id:
            return self._new_content(part, there.data), True
        return self._merged(part, there.data), False

    def _has_new(self, part: PatchPart) -> bool:
        """Whether the new path has everything that the part changes."""
        there = self._state(part.new_path or "")
        if there is None or part.new_id not in (None, there.id):
            return False
        changes_mode = part.new_mode != part.old_mode
        if changes_mode and there.mode != part.new_mode:
            return False
        return changes_mode or part.new_id is not None or part.old_path != part.new_path

    def _new_content(self, part: PatchPart, old: bytes) -> bytes:
        data = part.result(old)
        if data is None and part.new_id:
            data = self.find(part.new_id)
        if data is None:
            why = "its earlier content is not in the patch, because it is binary, and cannot be fetched"
            raise CannotApply(why if part.binary else MASKED)
        if part.new_id and blob_id(data) != part.new_id:
            raise CannotApply(MASKED)
        return data

    def _merged(self, part: PatchPart, current: bytes) -> bytes:
        if part.binary or LINK in (part.old_mode, part.new_mode):
            what = "link" if part.new_mode == LINK else "binary file"
            raise CannotApply(f"this {what} was changed here since, too, by something else than this run")
        base = self._base(part)
        if base is None:
            data = part.merged_by_context(current)
        else:
            data = _three_way(current, base, self._new_content(part, base))
        if data is None:
            raise CannotApply("the same lines were changed here since" if base is not None else OUT_OF_REACH)
        return data

    def _base(self, part: PatchPart) -> bytes | None:
        """Returns the content that the part changes: that of the directory, where only the plan differs from it."""
        there = self.directory.read(part.old_path or "") if part.old_id else None
        if there is not None and there.id == part.old_id:
            return there.data
        return self.find(part.old_id) if part.old_id else None

    def _state(self, path: str) -> FileState | None:
        if path in self._states:
            return self._states[path]
        there = self.directory.read(path)
        if path not in self._folders or (there is not None and (there.mode != FOLDER or not self._is_emptied(path))):
            return there
        planned = (each for each, state in reversed(self._states.items()) if state is not None)
        return FileState(FOLDER) if any(each.startswith(f"{path}/") for each in planned) else None

    def _is_emptied(self, folder: str) -> bool:
        """Whether the plan removes everything that is in the directory."""
        names = self.directory.names(folder)
        return bool(names) and all(self._state(name) is None for name in names)

    def _set(self, path: str, state: FileState | None, planned: Planned) -> None:
        self._put(path, state)
        self.applied.append(planned)

    def _put(self, path: str, state: FileState | None) -> None:
        self._states[path] = state
        self._folders.update(folders_of(path))


def order(part: PatchPart) -> int:
    """Sorts parts of several patches from the same start so that what they do to one path adds up where it can."""
    if part.new_path is None:
        return 0
    return 3 if part.old_path is None else 1 if part.old_path == part.new_path else 2


def folders_of(path: str) -> list[str]:
    """Returns the folders that the path is in, the outermost first."""
    return [path[:at] for at, character in enumerate(path) if character == "/"]


def _three_way(current: bytes, base: bytes, new: bytes) -> bytes | None:
    """Returns the merge by git, None where both sides changed the same lines.

    Raises CannotApply for content that git does not merge, and Unavailable where git cannot be run.
    """
    with tempfile.TemporaryDirectory(prefix="deputize-merge-") as folder:
        for name, data in (("current", current), ("base", base), ("new", new)):
            Path(folder, name).write_bytes(data)
        try:
            done = git("merge-file", "-p", "-q", "current", "base", "new", cwd=Path(folder))
        except OSError as error:
            why = error.strerror or str(error) or "it did not end"
            raise Unavailable(
                f"the program git, which merges files that both sides changed, failed here: {why}"
            ) from None
    if not 0 <= done.returncode < _FAILED:
        raise CannotApply(f"it was changed here since, and git cannot merge it: {done.stderr.decode(errors='replace')}")
    return done.stdout if done.returncode == 0 else None


def content_in_git(directory: Path, id: str) -> bytes | None:
    """Returns the content with this id from the repository that the directory is in, if any."""
    if (repository := repository_of(directory)) is None:
        return None
    try:
        done = git("cat-file", "blob", id, repository=repository)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 and blob_id(done.stdout) == id else None
