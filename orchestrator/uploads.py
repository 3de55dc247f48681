"""Uploaded archives: hashed while they are written to the folder that the service shares with its workers."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import secrets
from collections.abc import AsyncIterable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tarfile import BLOCKSIZE, TarError, TarInfo

from ..shared.errors import Invalid, OutOfSpace, TooLarge, Unavailable
from ..shared.settings import Settings
from ..shared.wire import Timestamp, Wire
from ..shared.workspaces import UPLOADS, UPLOADS_OF, upload_link, upload_path, use_upload
from .home import FULL, open_private

_PART = 1 << 20
"""Bytes that are written at a time: what is sent comes in smaller chunks, and each write needs a thread."""
_LEAST = 64 * 1024
"""Bytes for which a smaller upload counts: it takes an inode, and time to be looked through."""
_FIRST_BYTES = (b"PK\3\4", b"PK\5\6", b"\x1f\x8b", b"BZh", b"\xfd7zXZ")
"""Of zip files, and of what is compressed by gzip, bzip2 and xz, as workers read them."""


class Upload(Wire):
    """An archive that workspaces can be made of."""

    upload: str
    """What requests call it: `sha256:` and the digest of its bytes."""
    bytes: int
    """The size of the archive in bytes."""
    expires_at: Timestamp
    """When it is removed, unless a request names it before, or a delegation needs it."""


@dataclass(frozen=True, slots=True)
class AcceptedUpload:
    """An upload, and whether its owner had sent the same content before."""

    upload: Upload
    replayed: bool


async def receive(
    content: AsyncIterable[bytes], settings: Settings, sha256: str | None = None, owner: str = ""
) -> AcceptedUpload:
    """Stores an archive of a caller; nothing is left of one that breaks off.

    Raises Invalid where its digest is not ``sha256`` and where it begins as no archive does, TooLarge where its
    caller's uploads take too much together, OutOfSpace and Unavailable where it cannot be written.
    """
    root, waiting = settings.workspaces, bytearray()
    file: _Incoming | None = None
    try:
        file = await asyncio.to_thread(_Incoming, root, owner, settings, sha256)
        async for chunk in content:
            waiting += chunk
            if len(waiting) >= _PART:
                await asyncio.to_thread(file.write, bytes(waiting))
                waiting.clear()
        await asyncio.to_thread(file.write, bytes(waiting))
        return await asyncio.to_thread(file.keep, sha256)
    except OSError as error:
        if error.errno in FULL:
            raise OutOfSpace(f"no space left for an upload at {root}; free some there") from None
        raise Unavailable(f"uploads cannot be written below {root}: {error.strerror or error}") from None
    finally:
        if file is not None:
            await asyncio.to_thread(file.discard)


def _begins_as_archive(head: bytes) -> bool:
    if head.startswith(_FIRST_BYTES):
        return True
    try:
        TarInfo.frombuf(head[:BLOCKSIZE], "utf-8", "surrogateescape")
    except TarError:
        return head[:BLOCKSIZE] == bytes(BLOCKSIZE)  # a tar file without entries
    return True


class _Incoming:
    """The file of an upload until it is complete; locked, so that no janitor removes it."""

    def __init__(self, root: Path, owner: str, settings: Settings, sha256: str | None) -> None:
        self._expected = sha256
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._links = root / UPLOADS_OF / (owner or "@")
        for folder in (root / UPLOADS, self._links.parent, self._links):
            folder.mkdir(mode=0o700, exist_ok=True)
        self._root = root
        self._owner = owner
        self._settings = settings
        self._path = root / UPLOADS / f"{secrets.token_hex(16)}.part"
        self._file = open_private(self._path, "xb")
        self._digest = hashlib.sha256()
        self._head = b""
        with suppress(OSError):  # a file system without locks
            fcntl.flock(self._file, fcntl.LOCK_SH)
        self._link(self._path)

    def _link(self, path: Path) -> None:
        """Counts a file among those of its caller."""
        with suppress(FileExistsError):
            (self._links / path.name).symlink_to(Path("../..") / UPLOADS / path.name)

    def _check_room(self, more: int) -> None:
        """Raises TooLarge where the caller's uploads, with those under way, would take too much."""
        taken, most = max(self._file.tell() + more, _LEAST), self._settings.upload_kept_bytes
        with os.scandir(self._links) as links:
            for link in links:
                if link.name in (self._path.name, self._expected):  # the same content takes no more
                    continue
                try:
                    taken += max(link.stat().st_size, _LEAST)
                except FileNotFoundError:  # the upload has been removed
                    Path(link.path).unlink(missing_ok=True)
        if taken > most:
            whose = f"of the token {self._owner}" if self._owner else "here"
            raise TooLarge(
                f"all uploads {whose} may take {most:,} bytes together, and with this one they would take more. Each "
                f"is removed {self._settings.upload_retention_seconds:,} s after its last use; for more raise "
                "DEPUTIZE_UPLOAD_KEPT_BYTES"
            )

    @contextmanager
    def _counted_alone(self) -> Generator[None]:
        """Makes the caller's other uploads wait: two that find the same room free would both take it."""
        folder = os.open(self._links, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def write(self, part: bytes) -> None:
        self._digest.update(part)
        self._head += part[: BLOCKSIZE - len(self._head)]
        with self._counted_alone():
            self._check_room(len(part))
            self._file.write(part)
            self._file.flush()

    def keep(self, sha256: str | None) -> AcceptedUpload:
        """Puts the file in its place, unless its content is there already. Raises Invalid as ``receive`` does."""
        if sha256 not in (None, digest := self._digest.hexdigest()):
            raise Invalid.at("", f"the body's SHA-256 digest is {digest}, not {sha256}; it was damaged on its way")
        if not _begins_as_archive(self._head):
            what = "begins as no archive does" if self._head else "is empty"
            raise Invalid.at("", f"the body {what}; send zip, or tar that is plain or compressed by gzip, bzip2 or xz")
        name = f"sha256:{digest}"
        os.fsync(self._file)  # a name stands for a content, also after a crash of the machine
        with self._counted_alone():
            is_known = upload_link(self._root, self._owner, name).is_symlink()
            there = use_upload(self._root, name)
            if there is None:
                self._path.replace(upload_path(self._root, name))
            self._link(upload_path(self._root, name))
        found = there or os.fstat(self._file.fileno())
        ends = datetime.fromtimestamp(found.st_mtime + self._settings.upload_retention_seconds, UTC)
        return AcceptedUpload(Upload(upload=name, bytes=found.st_size, expires_at=ends), is_known and there is not None)

    def discard(self) -> None:
        """Closes the file, and deletes it unless it is in its place."""
        with suppress(OSError), self._file:  # what could not be written cannot be flushed
            self._path.unlink(missing_ok=True)
            (self._links / self._path.name).unlink(missing_ok=True)
