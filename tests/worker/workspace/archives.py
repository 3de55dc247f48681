"""Archives for tests: whole ones, from what they are to hold, and how a workspace is made of one."""

from __future__ import annotations

import hashlib
import io
import stat
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deputize.shared.request import ArchiveWorkspace
from deputize.shared.workspaces import upload_path
from deputize.worker.workspace.workspace import Workspace

Content = bytes | tuple[str, str] | None
"""Of a file; the kind and the target of a link, or the kind of what is no file; None for a directory."""
KINDS = {
    "link": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
    "fifo": tarfile.FIFOTYPE,
    "character device": tarfile.CHRTYPE,
    "block device": tarfile.BLKTYPE,
    "odd": b"Q",
}
ZIP_KINDS = {
    "link": stat.S_IFLNK,
    "fifo": stat.S_IFIFO,
    "character device": stat.S_IFCHR,
    "block device": stat.S_IFBLK,
    "socket": stat.S_IFSOCK,
}


def tar(*entries: tuple[str, Content], mode: Any = "w", bits: int = 0o644, **how: Any) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode, errors="surrogateescape", **how) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.mode = bits
            if content is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(content, tuple):
                info.type, info.linkname = KINDS[content[0]], content[1]
            else:
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return packed.getvalue()


def zipped(*entries: tuple[str, Content], bits: int = 0o644, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        for name, content in entries:
            info = zipfile.ZipInfo(name + "/" if content is None and not name.endswith("/") else name)
            info.compress_type, info.create_system = compression, 3
            kind = ZIP_KINDS[content[0]] if isinstance(content, tuple) else stat.S_IFREG
            info.external_attr = (stat.S_IFDIR | 0o755 if content is None else kind | bits) << 16
            archive.writestr(info, content[1] if isinstance(content, tuple) else content or b"")
    return packed.getvalue()


def store(root: Path, archive: bytes) -> ArchiveWorkspace:
    """Puts an archive where the service puts uploads."""
    upload = f"sha256:{hashlib.sha256(archive).hexdigest()}"
    path = upload_path(root, upload)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(archive)
    return ArchiveWorkspace(kind="archive", upload=upload)


async def made_of(archive: bytes, root: Path, id: str = "dlg_1", **more: Any) -> Workspace:
    return await Workspace.create(store(root, archive), id, root, **more)


def files_of(folder: Path) -> Mapping[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
