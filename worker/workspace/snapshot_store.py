"""The store from which the files of a run are made again on a machine that has none of them: S3, or what is like it.

Each run has there its start, the contents of its snapshots, and a log per attempt, so that a worker without its lease
overwrites nothing of a later attempt. A log begins with the fence of its attempt: after a failover of Redis that lost a
claim two attempts have the same number, and write the same log.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from ...shared.errors import Misconfigured, WorkspaceLost, extra_remedy
from ...shared.runs.record import Claim
from ...shared.workspaces import delete
from ..sandbox.command import create_status_file
from ..sandbox.environment import owner
from ..threads import give_way, release_slot
from .generation import Generation, apply_state, files_beside
from .manifest import scan
from .objects import FOLDER, MAX_BYTES
from .snapshots import History, Snapshots
from .source import open_folder
from .tree_changes import Stored
from .tree_copy import Copier, CopyStopped, TreeCopy

_START = "start.tar"
_EXTRACTED = "extracted"
_AT_ONCE = 16
"""Contents that are sent at a time."""
_PATIENCE = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
"""A step waits for its snapshot."""


class SnapshotStore:
    """A bucket by its URL. Credentials, region and endpoint are those of AWS's own variables (``AWS_…``).

    All methods raise OSError where the store fails, FileNotFoundError where it lacks a key.
    """

    def __init__(self, url: str) -> None:
        try:
            import obstore
            from obstore import store
            from obstore.exceptions import BaseError
        except ImportError:
            raise Misconfigured(f"DEPUTIZE_SNAPSHOT_STORE needs obstore: {extra_remedy('s3')}") from None
        self._obstore: Any = obstore
        self._error: type[Exception] = BaseError
        try:
            from_url: Any = store.from_url
            self._store: Any = from_url(url, **({"retry_config": _PATIENCE} if url.startswith("s3:") else {}))
        except (BaseError, ValueError) as error:
            raise Misconfigured(f"DEPUTIZE_SNAPSHOT_STORE: {url} cannot be opened: {error}") from None

    @contextmanager
    def _failing(self) -> Generator[None]:
        try:
            yield
        except self._error as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise OSError(f"the snapshot store failed: {str(error)[:500]}") from None

    def put(self, key: str, content: Path | bytes) -> None:
        with self._failing():
            self._obstore.put(self._store, key, content)

    def get(self, key: str, target: Path) -> None:
        """Writes the content to a file."""
        with self._failing(), target.open("wb") as file:
            for chunk in self._obstore.get(self._store, key).stream():
                give_way()
                file.write(chunk)

    def names(self, folder: str) -> list[str]:
        """Returns the keys below a folder, without it."""
        with self._failing():
            found = [each["path"] for some in self._obstore.list(self._store, f"{folder}/") for each in some]
            return [path.removeprefix(f"{folder}/") for path in found]

    def delete(self, folder: str) -> None:
        with self._failing():
            if names := self.names(folder):
                self._obstore.delete(self._store, [f"{folder}/{name}" for name in names])


@dataclass(slots=True)
class StoredRun:
    """What the store has of one run, and what an attempt adds to it. All methods block."""

    store: SnapshotStore
    id: str
    attempt: int
    fence: str
    _stored: set[str] = field(default_factory=set[str])
    _filled: bool = False

    def begin(self, files: Generation, snapshots: Snapshots) -> None:
        """Stores what an attempt begins with, before anything changes it; not what is too large together."""
        release_slot()
        if files.number == 1 and not self._filled:
            self.store.delete(self.id)  # what a try before left
            if snapshots.size <= MAX_BYTES:
                self._save_start(files.folder, ["files", "base"] if snapshots.history.changed else ["files"])
        self.save(files, snapshots)

    def _save_start(self, folder: Path, names: Sequence[str]) -> None:
        """Stores the files of a new workspace, and those of the start where they are not the same."""
        packed = folder / _START
        try:
            with tarfile.open(packed, "w") as tar:
                for path in (*files_beside(folder), *(folder / name for name in names)):
                    if path != packed:
                        tar.add(path, path.name)
            self.store.put(f"{self.id}/{_START}", packed)
        finally:
            packed.unlink(missing_ok=True)

    def save(self, files: Generation, snapshots: Snapshots) -> None:
        """Stores the snapshots until now, what failed before, too."""
        release_slot()
        ids = {kept.sha256 for kept in snapshots.history.changed.values() if kept and kept.sha256}
        new = sorted(ids - self._stored)
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(
                threads.map(
                    lambda each: self.store.put(f"{self.id}/{FOLDER}/{each}", files.folder / FOLDER / each), new
                )
            )
        self._stored |= ids
        content = files.log.read_bytes() if files.log.exists() else b""
        self.store.put(f"{self.id}/log.{self.attempt}", _first_line(self.fence) + content)

    def restore_of(self, claim: Claim) -> Callable[[Path, Event], None]:
        """Returns what fills a new workspace with the files of a run whose earlier attempts were elsewhere."""
        began = [call for call, state in claim.ledger.items() if json.loads(state)["state"] == "started"]
        past = claim.past
        return partial(
            self.fill, since=past.retried_after, count=claim.file_turns.count, calls=began, before=past.fence
        )

    def fill(
        self, folder: Path, stop: Event, *, since: int, count: int, calls: Collection[str], before: str = ""
    ) -> None:
        """Fills the folder of a new workspace with the run's files as they were after its last snapshot.

        ``since``: logs of attempts until that one are of an earlier try. ``count``: how many snapshots there must be.
        ``calls`` were under way: what became of commands among them is not known. ``before`` is the fence of the last
        attempt, where it is known. Raises ``WorkspaceLost``.
        """
        release_slot()
        new = Generation(folder, 1)
        try:
            self.store.get(f"{self.id}/{_START}", folder / _START)
            self._get_log(new.log, since, before)
            history = History.before(new.log, None)
            if history.turns.count < count or history.lacks:
                raise WorkspaceLost(
                    f"its files are not all in the snapshot store: {history.lacks or 'steps are missing'}"
                )
            self._extract(folder, stop)
            (folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
            for id in {kept.sha256 for kept in history.changed.values() if kept and kept.sha256}:
                if stop.is_set():
                    raise CopyStopped
                self.store.get(f"{self.id}/{FOLDER}/{id}", folder / FOLDER / id)
                self._stored.add(id)
        except (OSError, tarfile.TarError) as error:
            raise WorkspaceLost(f"its files cannot be taken from the snapshot store: {error}") from None
        with open_folder(new.files) as files:
            start = scan(files)
            apply_state(history.changed, files, Stored(folder / FOLDER, Copier(stop)), self.id)
        for call in calls:
            os.close(create_status_file(new.status_folder, call))
        new.start.write_text(json.dumps(start), "ascii")
        self._filled = True

    def _get_log(self, log: Path, since: int, before: str) -> None:
        """Writes the latest log of this try to the file, but none of an attempt whose claim is lost."""
        attempts = [int(name[4:]) for name in self.store.names(self.id) if name.startswith("log.")]
        for number in sorted((each for each in attempts if since < each < self.attempt), reverse=True):
            self.store.get(f"{self.id}/log.{number}", log)
            if not _is_of_another(log, before):
                return
            log.unlink()

    def _extract(self, folder: Path, stop: Event) -> None:
        extracted = folder / _EXTRACTED
        try:
            with tarfile.open(folder / _START) as tar:
                tar.extractall(extracted, filter="tar")
            start = extracted / "base"
            with (
                open_folder(extracted / "files") as files,
                open_folder(start if start.exists() else extracted / "files") as base,
                open_folder(folder / "files") as new_files,
                open_folder(folder / "base") as new_base,
            ):
                TreeCopy(files, new_files, owner=owner(), stop=stop).run()
                TreeCopy(base, new_base, lambda path, _: path.rpartition("/")[2] != ".git", stop=stop).run()
            for beside in extracted.iterdir():
                if beside.is_file():
                    beside.rename(folder / beside.name)
        finally:
            (folder / _START).unlink()
            with suppress(FileNotFoundError):
                delete(extracted)


def _first_line(fence: str) -> bytes:
    """Of a log: no snapshot, as the others are, so what reads these passes it over."""
    return json.dumps([fence]).encode() + b"\n"


def _is_of_another(log: Path, fence: str) -> bool:
    """Returns whether an attempt of the same number, but with another fence, has written the log."""
    with log.open("rb") as file:
        first = file.readline()
    number = fence.partition(":")[0]
    return first.startswith(f'["{number}:'.encode()) and first != _first_line(fence)
