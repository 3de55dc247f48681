"""The store of prepared environments: one folder each, named by its environment and digest, for all workers of a disk.

A folder is renamed to its name when it is complete, and nothing changes it afterwards. A lock file beside it is held
exclusively by what prepares or removes the folder, and shared by each run that uses it. The kernel releases both with
their process, so a crash leaves at most a half that the next preparation removes.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ...shared.fleet import EnvironmentState
from ...shared.libc import closing_fd
from ...shared.log import log
from ...shared.settings.environments import EnvironmentSettings
from ...shared.workspaces import delete
from ..sandbox.environment import owner

WORKSPACE, HOME = "workspace", "home"
"""The parts of a folder: what was made at the path of the workspace, and in the home directory."""
_SCRATCH, _FACTS = "scratch", "facts.json"
_LOG, _LOCK, _FAILED = ".log", ".lock", ".failed"
_HALF_DIGITS = 8
_UNNAMED_SECONDS = 14 * 24 * 3600
"""How long is kept what belongs to no environment of the settings any more."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one that is prepared. ``folders`` are those that were made in the workspace."""

    environment: str
    folders: list[str]
    bytes: int
    seconds: float
    made: float


@dataclass(frozen=True, slots=True)
class Kept:
    """One in the store. ``used`` is when a run last began with it. Unless it is ready, little is known of it."""

    key: str
    facts: Facts
    used: float
    state: EnvironmentState = "ready"


class InUse:
    """A prepared environment that nothing removes until this is closed."""

    def __init__(self, folder: Path, facts: Facts, lock: int) -> None:
        self.key, self.folder, self.facts, self._lock = folder.name, folder, facts, lock

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class Store:
    """The store in one folder. All of it blocks, but not for a lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def use(self, key: str) -> InUse | None:
        """Returns the one with this key; None where it is not there, or is just being prepared or removed."""
        lock = self._locked(key, fcntl.LOCK_SH)
        if lock is None:
            return None
        try:
            folder = self.folder / key
            facts = Facts(**json.loads((folder / _FACTS).read_text("utf-8")))
            os.utime(folder)
            used, lock = InUse(folder, facts, lock), None
            return used
        except FileNotFoundError:
            return None
        finally:
            if lock is not None:
                os.close(lock)

    def lock(self, key: str) -> int | None:
        """Returns a descriptor while which no other process prepares or removes this one; None if one does so."""
        return self._locked(key, fcntl.LOCK_EX)

    def _locked(self, key: str, kind: int) -> int | None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{key}{_LOCK}"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), path.stat()):  # else it was removed meanwhile
                found, lock = lock, -1
                return found
        except (BlockingIOError, FileNotFoundError):
            pass
        finally:
            if lock >= 0:
                os.close(lock)
        return None

    def begin(self, key: str) -> Path:
        """Returns a new folder to prepare in, whose parts commands own. Halves of earlier ones are removed."""
        self._remove_halves(key)
        folder = self.folder / f"{key}.{secrets.token_hex(_HALF_DIGITS // 2)}"
        folder.mkdir(mode=0o700)
        for part in (WORKSPACE, HOME, _SCRATCH):
            (folder / part).mkdir(mode=0o755)
            if ids := owner():
                os.chown(folder / part, *ids)
        return folder

    def _remove_halves(self, key: str) -> None:
        for half in self.folder.glob(f"{key}.*"):
            if half.is_dir() and not half.is_symlink():
                delete(half)

    @staticmethod
    def scratch(folder: Path) -> Path:
        """Returns where what is only needed meanwhile goes."""
        return folder / _SCRATCH

    def finish(self, key: str, folder: Path, facts: Facts) -> None:
        """Makes what was prepared in the folder the one with this key."""
        delete(folder / _SCRATCH)
        (folder / _FACTS).write_text(json.dumps(asdict(facts)), "utf-8")
        folder.rename(self.folder / key)
        (self.folder / f"{key}{_FAILED}").unlink(missing_ok=True)

    def write_log(self, key: str, text: str) -> None:
        path = self.folder / f"{key}{_LOG}"
        path.write_text(text, "utf-8", "replace")
        path.chmod(0o600)

    def write_failure(self, key: str, why: str) -> None:
        """Notes why a preparation failed, for the runs that wait for it."""
        (self.folder / f"{key}{_FAILED}").write_text(why, "utf-8", "replace")

    def failure(self, key: str, since: float) -> str:
        """Returns why a preparation failed that ended after that time; "" where none did."""
        path = self.folder / f"{key}{_FAILED}"
        try:
            return path.read_text("utf-8") if path.stat().st_mtime > since else ""
        except FileNotFoundError:
            return ""

    def logs(self, name: str) -> list[Path]:
        """Returns the logs of an environment, or of the one with this key, the newest first."""
        found = [path for path in self.folder.glob(f"*{_LOG}") if name in _names(path.name.removesuffix(_LOG))]
        return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)

    def kept(self) -> list[Kept]:
        """Returns all that are prepared, those first that were used last."""
        return sorted(self._kept(), key=lambda each: each.used, reverse=True)

    def listed(self) -> list[Kept]:
        """Returns the same, and what is just prepared, or failed since its environment was prepared last."""
        ready, newest = self.kept(), dict[str, float]()
        for each in ready:
            newest[each.facts.environment] = max(each.facts.made, newest.get(each.facts.environment, 0))
        others = {key: each for key, path in self._failures() if (each := self._unready(key, path, "failed"))}
        others |= {key: each for key, path in self._halves() if (each := self._unready(key, path, "preparing"))}
        shown = [
            each
            for each in others.values()
            if each.state == "preparing" or each.used > newest.get(each.facts.environment, 0)
        ]
        return sorted([*ready, *shown], key=lambda each: each.used, reverse=True)

    def _unready(self, key: str, path: Path, state: EnvironmentState) -> Kept | None:
        with suppress(FileNotFoundError):  # it goes just now
            if state == "failed" or self._is_under_way(key, path):
                began = path.stat().st_mtime
                seconds = round(time.time() - began, 1) if state == "preparing" else 0.0
                return Kept(key, Facts(_names(key)[1], [], 0, seconds, began), began, state)
        return None

    def _failures(self) -> Iterator[tuple[str, Path]]:
        for path in self.folder.glob(f"*{_FAILED}"):
            yield path.name.removesuffix(_FAILED), path

    def _halves(self) -> Iterator[tuple[str, Path]]:
        """Yields the incomplete folders, each with its key."""
        for path in self.folder.glob(f"*.{'[0-9a-f]' * _HALF_DIGITS}"):
            yield path.name.rpartition(".")[0], path

    def _is_under_way(self, key: str, half: Path) -> bool:
        if (half / _FACTS).exists() or not (self.folder / f"{key}{_LOCK}").exists():  # it is just removed
            return False
        if (lock := self.lock(key)) is not None:
            os.close(lock)
        return lock is None

    def _kept(self) -> Iterator[Kept]:
        for path in self.folder.glob(f"*/{_FACTS}"):
            with suppress(OSError, ValueError, TypeError):
                if "." not in path.parent.name.rpartition("-")[2]:  # not one that is just prepared
                    facts = Facts(**json.loads(path.read_text("utf-8")))
                    yield Kept(path.parent.name, facts, path.parent.stat().st_mtime)

    def evict(self, tables: Mapping[str, EnvironmentSettings]) -> list[str]:
        """Removes those that were not used for too long, and of each environment the oldest that are too large.

        Returns the keys of what was removed. What runs use stays. The halves that crashes left are removed, too.
        """
        now, sizes, due = time.time(), dict[str, int](), list[str]()
        for each in self.kept():
            name, table = each.facts.environment, tables.get(each.facts.environment)
            before = sizes.get(name, 0)
            sizes[name] = before + each.facts.bytes
            is_old = now - each.used > (table.keep if table else _UNNAMED_SECONDS)
            if is_old or (table and before and sizes[name] > table.max_bytes):
                due.append(each.key)
        for path in self.folder.glob(f"*{_LOG}"):  # of those that failed
            key, table = path.name.removesuffix(_LOG), tables.get(_names(path.name)[1])
            is_old = now - path.stat().st_mtime > (table.keep if table else _UNNAMED_SECONDS)
            due += [key] if is_old and not (self.folder / key).exists() else []
        for key in {key for key, _ in self._halves()}:
            if (self.folder / f"{key}{_LOCK}").exists() and (lock := self.lock(key)) is not None:  # not one under way
                with closing_fd(lock), suppress(OSError):
                    self._remove_halves(key)
        if removed := self.remove(due):
            log.info("prepared environments removed: %s", ", ".join(removed))
        return removed

    def remove(self, keys: Collection[str]) -> list[str]:
        """Removes these but for those that runs use; returns the keys of what was removed."""
        removed = list[str]()
        for key in keys:
            if (lock := self.lock(key)) is None:
                continue
            try:
                aside = self.folder / f"{key}.{secrets.token_hex(_HALF_DIGITS // 2)}"
                with suppress(FileNotFoundError):
                    (self.folder / key).rename(aside)
                    delete(aside)
                for ending in (_LOG, _FAILED, _LOCK):
                    (self.folder / f"{key}{ending}").unlink(missing_ok=True)
                removed.append(key)
            except OSError as error:
                log.warning("the prepared environment %s is left: %s", key, error)
            finally:
                os.close(lock)
        return removed


def _names(key: str) -> tuple[str, str]:
    return key, key.rpartition("-")[0]
