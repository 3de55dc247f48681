"""Archives to send: of a directory what a worker would copy of it, as a compressed tar file."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import stat as modes
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..shared.errors import Invalid
from ..shared.libc import closing_fd
from ..shared.listed import SECONDS, Source, is_copied, listed, outer_rules
from ..shared.text import HALF_CHARACTER
from ..shared.workspaces import leads_out

_CHUNK = 1 << 18


@dataclass(slots=True)
class Packed:
    """An open archive. ``left_out`` are paths of the directory that are not in it, and why."""

    file: Any
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    sha256: str = ""

    @property
    def name(self) -> str:
        """What the service calls it."""
        return f"sha256:{self.sha256}"

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields the bytes."""
        self.file.seek(0)
        while chunk := await asyncio.to_thread(self.file.read, _CHUNK):
            yield chunk


def pack(path: Path, *, ignored: bool = False, exclude: Sequence[str] = ()) -> Packed:
    """Opens an archive, or makes one of a directory: the same one where nothing in it has changed.

    As in a copy, ``ignored`` includes files that .gitignore names, and ``exclude`` are patterns of more that are
    not. Raises Invalid where something cannot be read.
    """
    try:
        is_folder, folder = path.is_dir(), path.resolve()
        packed = Packed(tempfile.TemporaryFile() if is_folder else path.open("rb"))  # noqa: SIM115 - the caller closes it
        if is_folder:
            _pack(folder, packed, copied_paths(folder, ignored=ignored, exclude=exclude))
        packed.file.seek(0)
        packed.sha256 = hashlib.file_digest(packed.file, "sha256").hexdigest()
        return packed
    except OSError as error:
        where = f" ({error.filename})" if isinstance(error.filename, str) else ""
        raise Invalid(f"{path} cannot be packed{where}: {error.strerror or error}") from None


def copied_paths(
    folder: Path,
    *,
    ignored: bool = False,
    exclude: Sequence[str] = (),
    seconds: float = SECONDS,
    go_on: Callable[[], None] = lambda: None,
) -> Iterator[str]:
    """Yields the paths of what a copy of the directory has, relative to it. Raises OSError.

    ``seconds`` limits the time for git's answers; ``go_on`` is called for each directory, and may raise.
    """

    def wanted() -> Set[str]:
        with closing_fd(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
            rules = None if ignored else outer_rules(folder)
            return listed(Source(fd, folder, go_on=go_on), rules, exclude, seconds)

    return _paths(folder, "", None if ignored and not exclude else wanted())


def _pack(top: Path, packed: Packed, paths: Iterator[str]) -> None:
    with (
        gzip.GzipFile("", "wb", 6, packed.file, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in paths:
            if why := _add(archive, top, path):
                packed.left_out[path] = why


def _paths(top: Path, folder: str, wanted: Set[str] | None) -> Iterator[str]:
    with os.scandir(top / folder) as found:
        entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in found)
    for name, is_directory in entries:
        path = f"{folder}/{name}" if folder else name
        if is_copied(wanted, path, is_directory):
            yield path
            if is_directory:
                yield from _paths(top, path, wanted)


def _add(archive: tarfile.TarFile, top: Path, path: str) -> str | None:
    """Adds a path, without times and owner. Returns why it is left out, if it is."""
    info, mode = tarfile.TarInfo(path), (top / path).lstat().st_mode
    info.mode = 0o755 if mode & modes.S_IXUSR else 0o644
    if HALF_CHARACTER.search(path):
        return "its name is not UTF-8"
    if path == ".git" and not modes.S_ISDIR(mode):
        return "its repository is elsewhere"
    if modes.S_ISREG(mode):
        with (top / path).open("rb") as content:
            info.size = os.fstat(content.fileno()).st_size
            archive.addfile(info, content)
        return None
    if modes.S_ISLNK(mode):
        info.type, info.linkname = tarfile.SYMTYPE, str((top / path).readlink())
        if leads_out(path, info.linkname):
            return "it is a link that leads out"
    elif modes.S_ISDIR(mode):
        info.type = tarfile.DIRTYPE
    else:
        return "it is a socket, a FIFO or a device"
    archive.addfile(info)
    return None
