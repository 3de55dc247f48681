"""The entries of zip and tar files, read forward, with bounds on the memory and the time that their structure takes.

The standard library reads both formats; what it trusts an archive in is bounded here: the lengths of headers and of the
index, the memory of decompression, and offsets that lead back.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat as modes
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Literal

MAX_HEADER_BYTES = 16 * 1024
"""Of the headers before one entry of a tar file, for which older Pythons take quadratic time and memory."""
MAX_COMMON_HEADERS = 100
"""Of those that a tar file has for all entries after them, which are kept."""
MAX_INDEX_BYTES = 16 << 20
"""Of the index of a zip file."""
MAX_LINK_BYTES = 4096
XZ_BYTES = 128 << 20
"""Memory that xz may need; its strongest preset needs half of it."""
_SYSTEM_UNIX = 3
_DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, ValueError, IndexError, OverflowError, NotImplementedError, RuntimeError),
)
"""What the readers raise for an archive that is not as it should be."""
_Bytes = IO[bytes] | io.BufferedIOBase
Kind = Literal["file", "directory", "link", "hard link"]


class BadEntry(Exception):
    """An archive is refused because of the entry ``name``, or as a whole where that is empty."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name[:300]!r} {why}" if name else why)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, directory or link in an archive; ``target`` is where a link leads. Its content can be read once."""

    name: str
    kind: Kind = "file"
    size: int = 0
    executable: bool = False
    target: str = ""
    open: Callable[[], IO[bytes]] = io.BytesIO

    def opened(self) -> IO[bytes]:
        with _reading(self.name):
            return self.open()

    def read(self, content: IO[bytes], size: int) -> bytes:
        """Returns the next bytes of the opened content, fewer only at its end. Raises BadEntry where it is damaged."""
        with _reading(self.name):
            return content.read(size)


@contextmanager
def _reading(name: str = "") -> Generator[None]:
    """Turns the errors of reading into BadEntry."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise BadEntry(error.object.decode("utf-8", "backslashreplace"), "has a name that is not UTF-8") from None
    except _DAMAGED as error:
        what = "cannot be read" if name else "the archive cannot be read"
        raise BadEntry(name, f"{what}: {str(error)[:200] or type(error).__name__}") from None


def entries_of(source: IO[bytes]) -> Iterator[Entry]:
    """Yields the entries of an archive. Raises BadEntry for what is none, and where it is damaged or too large."""
    head = source.read(8)
    source.seek(0)
    is_zip = head.startswith((b"PK\3\4", b"PK\5\6"))
    entries = _zip_entries(source) if is_zip else _tar_entries(_decompressed(source, head))
    while True:
        with _reading():
            entry = next(entries, None)
        if entry is None:
            return
        yield entry


def _decompressed(source: IO[bytes], head: bytes) -> _Bytes:
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=source)
    if head.startswith(b"BZh"):
        return io.BufferedReader(_Decompressed(source, bz2.BZ2Decompressor), 1 << 16)
    if head.startswith(b"\xfd7zXZ"):
        xz = partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, XZ_BYTES)
        return io.BufferedReader(_Decompressed(source, xz), 1 << 16)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        raise BadEntry("", "zstd is not supported; send zip, or tar that is plain or compressed by gzip, bzip2 or xz")
    return source


class _Decompressed(io.RawIOBase):
    """What streams of bzip2 or xz in a file hold, one after another."""

    def __init__(self, source: IO[bytes], new: Callable[[], Any]) -> None:
        self._source, self._new, self._decompressor = source, new, new()
        self._at_start = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._decompressor.eof:
                rest = self._decompressor.unused_data or self._source.read(1 << 16)
                if not rest.strip(b"\0"):  # xz may be followed by zeros
                    return 0
                self._decompressor = self._new()
            else:
                rest = self._source.read(1 << 16) if self._decompressor.needs_input else b""
                if self._decompressor.needs_input and not rest:
                    raise EOFError("it ends too early")
            if data := self._decompressor.decompress(rest, len(buffer)):
                buffer[: len(data)] = data
                return len(data)


class _TarBytes(io.RawIOBase):
    """The bytes of a tar file, only forward, and not more than were asked for in advance."""

    def __init__(self, source: _Bytes) -> None:
        self._source = source
        self.at = 0
        self.until = MAX_HEADER_BYTES
        self.last = b""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position = offset + (self.at if whence == io.SEEK_CUR else 0)
        if position < self.at:
            raise tarfile.ReadError("an offset leads back")
        while self.at < position and self.read(min(1 << 20, position - self.at)):
            pass
        return self.at

    def read(self, size: int = -1) -> bytes:
        if self.at + size > self.until:
            raise BadEntry("", f"the headers before an entry exceed {MAX_HEADER_BYTES >> 10} KiB")
        self.last = self._source.read(size)
        self.at += len(self.last)
        return self.last


def _tar_entries(source: _Bytes) -> Iterator[Entry]:
    content: Any = _TarBytes(source)
    try:
        archive: Any = tarfile.TarFile(fileobj=content, encoding="utf-8", errors="surrogateescape")
    except tarfile.ReadError as error:
        raise tarfile.ReadError(f"it is neither zip nor tar ({error})") from None
    while (info := archive.next()) is not None:
        archive.members.clear()  # else it keeps all of them
        if len(archive.pax_headers) > MAX_COMMON_HEADERS:
            raise BadEntry(info.name, f"comes after more than {MAX_COMMON_HEADERS} headers for all entries")
        if info.size < 0:
            raise BadEntry(info.name, "has a size below zero")
        content.until = max(content.at, info.offset_data + info.size) + MAX_HEADER_BYTES
        yield _tar_entry(archive, info)
    if content.last != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("it ends too early")


def _tar_entry(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Entry:
    if info.isreg():
        return Entry(info.name, "file", info.size, bool(info.mode & 0o100), open=partial(_extracted, archive, info))
    if info.isdir():
        return Entry(info.name, "directory")
    if info.issym() or info.islnk():
        return Entry(info.name, "link" if info.issym() else "hard link", target=info.linkname)
    kinds = {tarfile.FIFOTYPE: "a FIFO", tarfile.CHRTYPE: "a device", tarfile.BLKTYPE: "a device"}
    raise BadEntry(info.name, f"is {kinds.get(info.type, 'of an unknown kind')}, not a file, a directory or a link")


def _extracted(archive: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(info)
    assert content
    return content


class _ZipBytes(io.FileIO):
    """A zip file. Its index is read at once, and takes many times its size in memory."""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and 0 <= size <= MAX_INDEX_BYTES:
            return super().read(size)
        data = super().read(MAX_INDEX_BYTES + 1)
        if len(data) > MAX_INDEX_BYTES:
            raise zipfile.BadZipFile("its index is too large")
        return data


def _zip_entries(source: IO[bytes]) -> Iterator[Entry]:
    with _ZipBytes(source.fileno(), closefd=False) as content, zipfile.ZipFile(content) as archive:
        for info in archive.infolist():
            yield _zip_entry(archive, info)


def _zip_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Entry:
    name = _zip_name(info)
    mode = info.external_attr >> 16 if info.create_system == _SYSTEM_UNIX else 0
    if info.flag_bits & 0x1:
        raise BadEntry(name, "is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadEntry(name, "is neither stored nor deflated; other compressions of zip are not supported")
    kind = modes.S_IFMT(mode)
    if name.endswith("/") or kind == modes.S_IFDIR:
        return Entry(name, "directory")
    opened = partial(archive.open, info)
    if kind == modes.S_IFLNK:
        if info.file_size > MAX_LINK_BYTES:
            raise BadEntry(name, f"is a link of more than {MAX_LINK_BYTES:,} bytes")
        with _reading(name), opened() as content:
            return Entry(name, "link", target=content.read(MAX_LINK_BYTES).decode())
    if kind not in (0, modes.S_IFREG):
        raise BadEntry(name, "is a device, a FIFO or a socket, not a file, a directory or a link")
    return Entry(name, "file", info.file_size, bool(mode & 0o100), open=opened)


def _zip_name(info: zipfile.ZipInfo) -> str:
    """Returns the name of an entry. Raises BadEntry where it is not UTF-8, or separated as on Windows."""
    name = info.orig_filename
    if not info.flag_bits & 0x800:  # without this mark it was read as code page 437, which is often untrue
        try:
            name = name.encode("cp437").decode("utf-8")
        except ValueError:
            raise BadEntry(name, "has a name that is not UTF-8") from None
    if "\\" in name:
        raise BadEntry(name, "has a backslash in its name; separate directories by /")
    return name
