"""Artifacts: texts that a run produces for its caller, each version a file in the private directory of its workspace.

Manifests and patches do not include them; when the run ends, they are stored in its record
(``shared/runs/record.py``).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

from ...shared.delegation import Artifact
from ...shared.errors import ErrorType, ToolError
from ...shared.runs.record import MAX_KEPT_BYTES
from ...shared.text import clip, did_you_mean
from ..contracts import FileAccess
from .file_entries import PRIVATE_DIR
from .locks import edit_lock

MAX_BYTES = 1024 * 1024
"""Bytes of one version."""
MAX_ARTIFACTS = 50
MAX_VERSIONS = 100
MAX_NAME_BYTES = 200
_FOLDER = "artifacts"
_VERSION = re.compile(r"[1-9][0-9]{0,2}")


class Artifacts:
    """The artifacts of one run. Versions are immutable. The methods block."""

    def __init__(self, files: FileAccess) -> None:
        self._files = files

    def latest(self, name: str) -> int:
        """Returns the number of the newest version, from 1 on; 0 if it does not exist.

        Raises ToolError(INVALID_TOOL_PARAMS) for an invalid name.
        """
        return max(self._versions(_check_name(name)), default=0)

    @contextmanager
    def edit_lock(self, name: str) -> Generator[None]:
        """Locks the artifact for other writers, so that a version follows the one it was made from."""
        with edit_lock(self._files, f"{PRIVATE_DIR}/{_FOLDER}/{_check_name(name)}"):
            yield

    def read(self, name: str, version: int | None = None) -> tuple[int, str]:
        """Returns the number and the content of a version, by default the latest.

        Raises ToolError(FILE_NOT_FOUND) if it does not exist.
        """
        latest = self.latest(name)
        if not latest:
            raise self._not_found_error(name)
        wanted = version or latest
        if wanted not in self._versions(name):
            raise ToolError(
                ErrorType.FILE_NOT_FOUND,
                f"Artifact {name!r} has no version {wanted}; it has 1 to {latest}. Use one of them.",
            )
        return wanted, self._content(name, wanted)

    def add(self, name: str, content: str, version: int) -> None:
        """Writes the next version. Raises ToolError(LIMIT_REACHED) for too large a content or too many versions."""
        data = content.encode("utf-8", "replace")
        if len(data) > MAX_BYTES:
            raise _limit_error(f"{name!r} would have {len(data)} bytes, at most {MAX_BYTES} are kept; make it shorter")
        if version > MAX_VERSIONS:
            raise _limit_error(
                f"{name!r} has {MAX_VERSIONS} versions, and no more are kept; create one of another name"
            )
        if version == 1 and len(self.names()) >= MAX_ARTIFACTS:
            raise _limit_error(f"there are {MAX_ARTIFACTS} already; rewrite one of them")
        self._files.write_private(f"{_FOLDER}/{name}/{version}", data)

    def names(self) -> list[str]:
        """Returns the names of all artifacts."""
        try:
            found = [entry.name for entry in self._files.scan(f"{PRIVATE_DIR}/{_FOLDER}")]
        except ToolError:
            return []
        return [name for name in found if _is_name(name) and self._versions(name)]

    def latest_versions(self) -> list[Artifact]:
        """Returns each artifact with the number and the size in bytes of its latest version, sorted by name."""
        found = ((name, self._versions(name)) for name in self.names()[:MAX_ARTIFACTS])
        return [Artifact(name=name, version=max(sizes), size=sizes[max(sizes)]) for name, sizes in found]

    def contents(self, artifacts: Sequence[Artifact], most: int = MAX_KEPT_BYTES) -> dict[tuple[str, int], str]:
        """Returns contents by name and version, at most ``MAX_KEPT_BYTES`` and ``most``: the latest versions first."""
        kept: dict[tuple[str, int], str] = {}
        room = min(MAX_KEPT_BYTES, most)
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
        """Returns the size of each version. Other files, which commands may have put there, are ignored."""
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

    def _not_found_error(self, name: str) -> ToolError:
        names = self.names()
        sentences = [f"There is no artifact {name!r}."]
        sentences += [near.replace("did", "Did", 1)] if (near := did_you_mean(name, names, cutoff=0.6)) else []
        sentences += [f"There are: {clip(', '.join(names), 1000)}." if names else "Create one with create_artifact."]
        return ToolError(ErrorType.FILE_NOT_FOUND, " ".join(sentences))


def _check_name(name: str) -> str:
    if not _is_name(name):
        raise ToolError(
            ErrorType.INVALID_TOOL_PARAMS,
            f"{clip(name, 100)!r} is not a valid artifact name: use one like report.md, without / and control "
            f"characters, not starting with a dot or a space, of at most {MAX_NAME_BYTES} bytes.",
        )
    return name


def _is_name(name: str) -> bool:
    """Whether the name is valid; it becomes a file name and a part of the artifact's URL."""
    plain = name.isprintable() and name == name.strip() and "/" not in name and not name.startswith(".")
    return bool(name) and plain and len(name.encode()) <= MAX_NAME_BYTES


def _limit_error(why: str) -> ToolError:
    return ToolError(ErrorType.LIMIT_REACHED, f"This artifact cannot be kept: {why}.")
