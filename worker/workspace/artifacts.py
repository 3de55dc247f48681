"""Artifacts: texts that a run makes to be handed over, each version a file of our own directory in its workspace.

They are no part of the work on files: manifests and patches do not see them, and the record keeps them when the run
ends (``shared/runs/artifacts.py``).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

from shared.delegation import Artifact
from shared.errors import ErrorType, ToolError
from shared.runs.artifacts import MAX_KEPT_BYTES
from shared.text import clip, did_you_mean
from worker.workspace.files import Files
from worker.workspace.locks import changing
from worker.workspace.private import PRIVATE_DIR, write_private

MAX_BYTES = 1024 * 1024
"""Of one version."""
MAX_ARTIFACTS = 50
MAX_VERSIONS = 100
MAX_NAME_BYTES = 200
_FOLDER = "artifacts"
_VERSION = re.compile(r"[1-9][0-9]{0,2}")


class Artifacts:
    """The artifacts of one run. A version that is written is never changed. The methods block."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def latest(self, name: str) -> int:
        """The number of the newest version, counted from 1; 0 where there is no such artifact.

        Raises ToolError(INVALID_TOOL_PARAMS) for a name that none can have.
        """
        return max(self._versions(_checked(name)), default=0)

    @contextmanager
    def changing(self, name: str) -> Generator[None]:
        """Keeps other writers of the artifact waiting, so that a next version follows the one it was made from."""
        with changing(self._files, f"{PRIVATE_DIR}/{_FOLDER}/{_checked(name)}"):
            yield

    def read(self, name: str, version: int | None = None) -> tuple[int, str]:
        """The latest version, or the one that is asked for: its number and its content. Raises ToolError."""
        latest = self.latest(name)
        if not latest:
            raise self._unknown(name)
        wanted = version or latest
        if wanted not in self._versions(name):
            raise ToolError(
                ErrorType.FILE_NOT_FOUND, f"Artifact {name!r} has no version {wanted}; it has 1 to {latest}. Take one."
            )
        return wanted, self._content(name, wanted)

    def add(self, name: str, content: str, version: int) -> None:
        """Writes the next version. Raises ToolError where the content is too large or there is no room for more."""
        data = content.encode("utf-8", "replace")
        if len(data) > MAX_BYTES:
            raise _too_much(f"{name!r} would have {len(data)} bytes, at most {MAX_BYTES} are kept; make it shorter")
        if version > MAX_VERSIONS:
            raise _too_much(f"{name!r} has {MAX_VERSIONS} versions, and no more are kept; create one of another name")
        if version == 1 and len(self.names()) >= MAX_ARTIFACTS:
            raise _too_much(f"there are {MAX_ARTIFACTS} already; rewrite one of them")
        write_private(self._files, f"{_FOLDER}/{name}/{version}", data)

    def names(self) -> list[str]:
        try:
            found = [entry.name for entry in self._files.scan(f"{PRIVATE_DIR}/{_FOLDER}")]
        except ToolError:
            return []
        return [name for name in found if _is_name(name) and self._versions(name)]

    def listed(self) -> list[Artifact]:
        """Each by name with its latest version; sizes are bytes."""
        found = ((name, self._versions(name)) for name in self.names()[:MAX_ARTIFACTS])
        return [Artifact(name=name, version=max(sizes), size=sizes[max(sizes)]) for name, sizes in found]

    def contents(self, artifacts: Sequence[Artifact]) -> dict[tuple[str, int], str]:
        """Contents by name and version: the latest of each first, then older ones, as far as there is room."""
        kept: dict[tuple[str, int], str] = {}
        room = MAX_KEPT_BYTES
        waiting = [(artifact.name, artifact.version) for artifact in artifacts]
        waiting += [(name, version) for name, last in waiting for version in range(last - 1, 0, -1)]
        for name, version in waiting:
            size = self._versions(name).get(version)
            if size is None or size > min(room, MAX_BYTES):
                continue
            with suppress(ToolError):  # a command made it unreadable
                kept[name, version] = self._content(name, version)
                room -= size
        return kept

    def _versions(self, name: str) -> dict[int, int]:
        """Size by version. What commands may have put beside them is no version."""
        try:
            entries = self._files.scan(f"{PRIVATE_DIR}/{_FOLDER}/{name}")
        except ToolError:
            return {}
        return {
            int(entry.name): entry.stat.size
            for entry in entries
            if entry.stat.kind == "file" and _VERSION.fullmatch(entry.name)
        }

    def _content(self, name: str, version: int) -> str:
        return self._files.read(f"{PRIVATE_DIR}/{_FOLDER}/{name}/{version}", MAX_BYTES).decode("utf-8", "replace")

    def _unknown(self, name: str) -> ToolError:
        names = self.names()
        said = [f"There is no artifact {name!r}."]
        said += [near.replace("did", "Did", 1)] if (near := did_you_mean(name, names, cutoff=0.6)) else []
        said += [f"There are: {clip(', '.join(names), 1000)}." if names else "Make one with create_artifact."]
        return ToolError(ErrorType.FILE_NOT_FOUND, " ".join(said))


def _checked(name: str) -> str:
    if not _is_name(name):
        raise ToolError(
            ErrorType.INVALID_TOOL_PARAMS,
            f"{clip(name, 100)!r} cannot be an artifact's name: take a plain one like report.md, without / and control "
            f"characters, not beginning with a dot or a blank, of at most {MAX_NAME_BYTES} bytes.",
        )
    return name


def _is_name(name: str) -> bool:
    """Names are file names, and parts of the addresses under which artifacts are fetched."""
    plain = name.isprintable() and name == name.strip() and "/" not in name and not name.startswith(".")
    return bool(name) and plain and len(name.encode()) <= MAX_NAME_BYTES


def _too_much(why: str) -> ToolError:
    return ToolError(ErrorType.LIMIT_REACHED, f"This artifact cannot be kept: {why}.")
