"""The extraction of an uploaded archive, which is untrusted: within bounds, and never to a place outside.

An archive is extracted as a whole or refused, by the name of the first entry that is not allowed. Of an entry count its
content, whether it can be executed, and where a link leads. Links are made last: no entry is written through one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import IO

from ...shared.libc import beneath, closing_fd
from ...shared.workspaces import MAX_DEPTH, MAX_ENTRIES, MAX_PATH_BYTES, PRIVATE_DIR, leads_out
from ..threads import give_way
from .archive_formats import BadEntry, Entry, entries_of
from .tree_copy import CopyStopped, CopyTally, SourceTooLarge

MAX_NAME_BYTES = 255
MAX_RATIO = 200
"""How many times as large as the archive its content may be, where that is more than SMALL_BYTES."""
SMALL_BYTES = 64 << 20
_CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Extraction:
    """Extracts the archive ``source`` into the empty directory ``target`` (a descriptor).

    Attributes:
        owner: The owner (uid, gid) of what is extracted.
        stop: Cancels the extraction.
        max_bytes: The largest number of bytes of all files.
        tally: Counts what is extracted.
    """

    source: IO[bytes]
    target: int
    owner: tuple[int, int] | None = None
    stop: Event = field(default_factory=Event)
    max_bytes: int | None = None
    tally: CopyTally = field(default_factory=CopyTally)
    _entries: int = 0
    _links: dict[str, Entry] = field(default_factory=dict[str, Entry])

    def run(self) -> None:
        """Extracts everything.

        Raises:
            CopyStopped: ``stop`` was set.
            BadEntry: An entry is not allowed, or the archive is damaged.
            SourceTooLarge: The files have more than ``max_bytes``.
            OSError: An error of the target.
        """
        for entry in entries_of(self.source):
            self._go_on()
            self._entries += 1
            if self._entries > MAX_ENTRIES:
                raise BadEntry(entry.name, f"is one more than the {MAX_ENTRIES:,} entries that an archive may have")
            path = checked_path(entry.name)
            self._count(entry)
            parts = path.split("/")
            if path and PRIVATE_DIR not in (parts if entry.kind == "directory" else parts[:-1]):
                self._extract(entry, path)
        for path, entry in self._links.items():
            self._go_on()
            self._place(path, entry, lambda name, folder, to=entry.target: os.symlink(to, name, dir_fd=folder))
        for path, entry in self._links.items():
            self._check_link(path, entry)

    def _go_on(self) -> None:
        if self.stop.is_set():
            raise CopyStopped
        give_way()

    def _count(self, entry: Entry) -> None:
        self.tally.bytes += entry.size
        if self.max_bytes is not None and self.tally.bytes > self.max_bytes:
            raise SourceTooLarge(entry.name)
        most = max(SMALL_BYTES, MAX_RATIO * os.fstat(self.source.fileno()).st_size)
        if self.tally.bytes > most:
            raise BadEntry(entry.name, f"makes the content more than {MAX_RATIO} times as large as the archive")

    def _extract(self, entry: Entry, path: str) -> None:
        if entry.kind == "directory":
            os.close(self._folder(path, entry))
        elif entry.kind == "file":
            self.tally.files += 1
            self._place(path, entry, lambda name, folder: self._write(entry, name, folder))
        elif entry.kind == "hard link":
            self._place(path, entry, lambda name, folder: self._link(entry, name, folder))
        elif leads_out(path, entry.target):
            raise _bad_link(entry)
        elif self._links.setdefault(path, entry) is not entry:
            raise BadEntry(entry.name, "is in it twice")

    def _place(self, path: str, entry: Entry, make: Callable[[str, int], None]) -> None:
        """Calls ``make`` with the name of a new file and its directory."""
        above, _, name = path.rpartition("/")
        with closing_fd(self._folder(above, entry)) as folder:
            try:
                make(name, folder)
            except FileExistsError:
                raise BadEntry(entry.name, "is in it twice") from None
            if self.owner and entry.kind == "link":
                os.chown(name, *self.owner, dir_fd=folder, follow_symlinks=False)

    def _folder(self, path: str, entry: Entry) -> int:
        """Opens a directory, and makes it and those above it where they are missing."""
        try:
            return beneath(self.target, path or ".", _FOLDER, links=False)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise BadEntry(entry.name, "is below a file of the archive") from None
            if error.errno != errno.ENOENT:
                raise
        above, _, name = path.rpartition("/")
        with closing_fd(self._folder(above, entry)) as folder:
            os.mkdir(name, 0o755, dir_fd=folder)
            fd = os.open(name, _FOLDER, dir_fd=folder)
        os.fchmod(fd, 0o755)
        if self.owner:
            os.fchown(fd, *self.owner)
        return fd

    def _write(self, entry: Entry, name: str, folder: int) -> None:
        with closing_fd(os.open(name, _NEW, 0o600, dir_fd=folder)) as fd, entry.opened() as content:
            left = entry.size
            while left and (chunk := entry.read(content, min(_CHUNK, left))):
                self._go_on()
                left -= len(chunk)
                while chunk:
                    chunk = chunk[os.write(fd, chunk) :]
            if left or entry.read(content, 1):
                raise BadEntry(entry.name, "has not as many bytes as it should have; the archive is damaged")
            if self.owner:
                os.fchown(fd, *self.owner)
            os.fchmod(fd, 0o755 if entry.executable else 0o644)

    def _link(self, entry: Entry, name: str, folder: int) -> None:
        """Makes a hard link to a file that was extracted before."""
        above, _, there = checked_path(entry.target, entry.name).rpartition("/")
        try:
            with closing_fd(beneath(self.target, above or ".", _FOLDER, links=False)) as other:
                found = os.stat(there, dir_fd=other, follow_symlinks=False)
                self._count(Entry(entry.name, size=found.st_size))  # the copy that changes are found by has it twice
                os.link(there, name, src_dir_fd=other, dst_dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            why = f"is a hard link to {entry.target[:300]!r}, but no file of that name precedes it"
            raise BadEntry(entry.name, why) from None

    def _check_link(self, path: str, entry: Entry) -> None:
        """Raises BadEntry for a link that leads out through others."""
        try:
            os.close(beneath(self.target, path, os.O_PATH | os.O_CLOEXEC))
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise _bad_link(entry) from None


def _bad_link(entry: Entry) -> BadEntry:
    return BadEntry(entry.name, f"is a link to {entry.target[:300]!r}, which leads out of the workspace")


def checked_path(name: str, of: str | None = None) -> str:
    """Returns the path of an entry without what has no meaning; empty for the top. Raises BadEntry."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    why = None
    if any("\ud800" <= character <= "\udfff" for character in name):
        why = "has a name that is not UTF-8"
    elif "\0" in name:
        why = "has a NUL character in its name"
    elif name.startswith("/"):
        why = "has an absolute path"
    elif ".." in parts:
        why = "has a path with .."
    elif len(parts) > MAX_DEPTH:
        why = f"is more than {MAX_DEPTH} directories deep"
    elif len(os.fsencode(name)) > MAX_PATH_BYTES or any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in parts):
        why = f"has a path of more than {MAX_PATH_BYTES:,} bytes, or a name in it of more than {MAX_NAME_BYTES}"
    if why:
        raise BadEntry(of or name, why)
    return "/".join(parts)
