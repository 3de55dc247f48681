"""Trust: found is never named.

What merely lies in a directory counts only after somebody has looked at it: its files' bytes are recorded below the
user's own configuration directory, and count as long as they are the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from shared.covered import covered, regular_bytes
from shared.errors import Misconfigured
from shared.log import log
from shared.wire import now

HOW = "`deputize trust {folder}` shows it and records that it is yours"
_MAX_RECORDS = 64 * 1024 * 1024
_MAX_TEXT = 64 * 1024
"""Bytes of a file that are kept to show what has changed since."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was trusted of one directory: digests by path, and the texts as they were."""

    at: datetime
    digests: Mapping[str, str]
    texts: Mapping[str, str]


def configuration_folder(environ: Mapping[str, str]) -> Path:
    """The user's own: ``$XDG_CONFIG_HOME/deputize``, by default ``~/.config/deputize``."""
    base = environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path("~/.config").expanduser()) / "deputize"


class TrustRecords:
    """The records of one user, in a file that nobody else may write."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "trusted.json"

    def of(self, folder: Path) -> Recorded | None:
        """What was recorded of a directory, or None."""
        kept = self._read().get(_key(folder))
        return _recorded(kept) if isinstance(kept, dict) else None

    def folders(self) -> Sequence[str]:
        return sorted(self._read())

    def held(self, folder: Path) -> Mapping[str, bytes] | None:
        """The files of a trusted directory as they are now, by absolute path; None where the trust does not hold.

        Use these bytes and do not read the files again: they may be others by then.
        """
        recorded = self.of(folder)
        if recorded is None:
            return None
        try:
            files = covered(Path(_key(folder)))
        except Misconfigured as error:
            log.warning("the trust in %s does not hold: %s", folder, error)
            return None
        if digests(files) != recorded.digests:
            log.warning("%s has changed since it was trusted; %s", folder, HOW.format(folder=folder))
            return None
        return files

    def record(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Trusts these bytes, which somebody has looked at."""
        texts = {path: text for path, data in files.items() if (text := text_of(data)) is not None}
        kept = {"at": now().isoformat(), "digests": digests(files), "texts": texts}
        self._write({**self._read(), _key(folder): kept})

    def revoke(self, folder: Path) -> bool:
        """Forgets a directory; whether it was trusted."""
        kept = self._read()
        was = kept.pop(_key(folder), None) is not None
        if was:
            self._write(kept)
        return was

    def _read(self) -> dict[str, Any]:
        try:
            mode = self._file.stat()
            if mode.st_uid != os.geteuid() or mode.st_mode & 0o022:
                log.warning("%s is not used: others than its user may have written it", self._file)
                return {}
            kept: Any = json.loads(regular_bytes(self._file, _MAX_RECORDS) or b"{}")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, Misconfigured) as error:
            log.warning("%s is not used: %s", self._file, error)
            return {}
        return kept if isinstance(kept, dict) else {}

    def _write(self, kept: Mapping[str, Any]) -> None:
        """All of it or nothing."""
        new = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(kept, file)
            new.replace(self._file)
        except OSError as error:
            raise Misconfigured(f"{self._file} cannot be written: {error.strerror}") from None


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {path: hashlib.sha256(data).hexdigest() for path, data in sorted(files.items())}


def text_of(data: bytes) -> str | None:
    """A file's text where people can read it; None for other bytes and for long ones."""
    try:
        return data.decode() if len(data) <= _MAX_TEXT and b"\0" not in data else None
    except UnicodeDecodeError:
        return None


def _key(folder: Path) -> str:
    return os.path.realpath(folder)


def _recorded(kept: Mapping[str, Any]) -> Recorded | None:
    try:
        return Recorded(datetime.fromisoformat(kept["at"]), dict(kept["digests"]), dict(kept["texts"]))
    except (KeyError, TypeError, ValueError):
        return None
