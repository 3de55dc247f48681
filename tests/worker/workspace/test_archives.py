"""What is extracted of an archive, and each way in which one is refused, by the name of its entry."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import lzma
import os
import random
import stat
import struct
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from deputize.shared.errors import Invalid
from deputize.shared.request import ArchiveWorkspace
from deputize.worker.sandbox import environment
from deputize.worker.workspace import archive as bounds
from deputize.worker.workspace import archive_formats
from deputize.worker.workspace.tree_copy import CopyTally
from deputize.worker.workspace.workspace import Workspace
from tests.processes.lag import lag_probe
from tests.waiting import until
from tests.worker.workspace.archives import Content, files_of, made_of, store, tar, zipped
from tests.worker.workspace.trees import tree

PROJECT: tuple[tuple[str, Content], ...] = (
    ("top", None),
    ("top/src/é b.py", b"one\n"),
    ("top/empty", b""),
    ("top/folder/", None),
    ("top/big", bytes(300_000)),
    ("top/src/link", ("link", "../empty")),
    ("top/dangling", ("link", "src/none")),
    ("top/inner.zip", zipped(("x", b"1"))),
    ("top/.git/HEAD", b"ref: refs/heads/main\n"),
    ("top/.gitignore", b"*.log\n"),
)
FORMATS: dict[str, Callable[[], bytes]] = {
    "zip": lambda: zipped(*PROJECT),
    "zip, stored": lambda: zipped(*PROJECT, compression=zipfile.ZIP_STORED),
    "tar": lambda: tar(*PROJECT),
    "tar, as GNU writes it": lambda: tar(*PROJECT, format=tarfile.GNU_FORMAT),
    "tar.gz": lambda: tar(*PROJECT, mode="w:gz"),
    "tar.gz, in parts": lambda: gzip.compress(tar(*PROJECT)[:1000]) + gzip.compress(tar(*PROJECT)[1000:]),
    "tar.bz2": lambda: tar(*PROJECT, mode="w:bz2"),
    "tar.bz2, in parts": lambda: bz2.compress(tar(*PROJECT)[:1000]) + bz2.compress(tar(*PROJECT)[1000:]),
    "tar.xz": lambda: tar(*PROJECT, mode="w:xz"),
    "tar.xz, padded": lambda: lzma.compress(tar(*PROJECT)) + bytes(8),
}


@pytest.mark.parametrize("format", FORMATS)
async def test_everything_in_an_archive_is_the_files_of_the_run(format: str, root: Path) -> None:
    workspace = await made_of(FORMATS[format](), root)
    expected = {name: content for name, content in PROJECT if isinstance(content, bytes)}
    assert files_of(workspace.path) == expected
    assert (workspace.path / "top/folder").is_dir()
    assert (workspace.path / "top/src/link").readlink() == Path("../empty")
    assert (workspace.path / "top/dangling").readlink() == Path("src/none")
    assert (await workspace.facts()).changes == []
    assert workspace.origin is None
    (workspace.path / "top/src/é b.py").write_text("two\n")
    (workspace.path / "top/made.log").write_text("ignored")
    facts = await workspace.facts()
    assert [change.path for change in facts.changes] == ["top/src/é b.py"]
    assert "-one\n+two\n" in facts.patch
    await workspace.remove()


@pytest.mark.parametrize("pack", [tar, zipped])
async def test_of_the_bits_of_a_file_only_that_it_is_a_program_counts(pack: Callable[..., bytes], root: Path) -> None:
    for number, (bits, kept) in enumerate(
        [(0o7777, 0o755), (0o4711, 0o755), (0o644, 0o644), (0o077, 0o644), (0, 0o644)]
    ):
        workspace = await made_of(pack(("d", None), ("d/a", b"1"), bits=bits), root, f"dlg_{number}")
        modes = [stat.S_IMODE((workspace.path / name).stat().st_mode) for name in ("d", "d/a")]
        assert modes == [0o755, kept]
        owner = environment.owner() or (os.geteuid(), os.getegid())
        assert {(path.lstat().st_uid, path.lstat().st_gid) for path in workspace.path.rglob("*")} == {owner}
        await workspace.remove()


async def test_names_that_mean_the_same_are_written_once_and_others_are_kept_apart(root: Path) -> None:
    names = ["./", "./a/./b//c", "A/b/c", "e\u0301", "\u00e9", "back\\slash", "line\nend"]
    archive = tar(*((name, None if name == "./" else name.encode()) for name in names))
    workspace = await made_of(archive, root)
    assert {*files_of(workspace.path)} == {"a/b/c", "A/b/c", "e\u0301", "\u00e9", "back\\slash", "line\nend"}
    await workspace.remove()


async def test_what_is_the_workers_own_is_left_out_as_in_a_copy(root: Path) -> None:
    archive = tar(
        ("a", b"1"), (".deputize", None), (".deputize/x", b"2"), ("d/.deputize/y", b"3"), (".git/config", b"4")
    )
    workspace = await made_of(archive, root)
    assert {*files_of(workspace.path)} == {"a", ".git/config"}
    assert {*files_of(root / "dlg_1/base")} == {"a"}
    await workspace.remove()


async def test_a_hard_link_is_the_file_before_it(root: Path) -> None:
    workspace = await made_of(tar(("d/a", b"1"), ("d/b", ("hard link", "./d/a"))), root)
    assert files_of(workspace.path) == {"d/a": b"1", "d/b": b"1"}
    await workspace.remove()


async def test_a_name_without_the_mark_of_utf_8_may_be_utf_8(root: Path) -> None:
    archive = zipped(("é", b"1")).replace(struct.pack("<H", 0x800), bytes(2))
    workspace = await made_of(archive, root)
    assert [*files_of(workspace.path)] == ["é"]
    await workspace.remove()


def lying_zip(size: int) -> bytes:
    """A zip whose entry states another size than it has, in both places."""
    archive = bytearray(zipped(("a", b"x" * 1000)))
    for start in (22, archive.index(b"PK\1\2") + 24):
        archive[start : start + 4] = struct.pack("<I", size)
    return bytes(archive)


def encrypted_zip() -> bytes:
    archive = bytearray(zipped(("secret", b"x" * 100)))
    for start in (6, archive.index(b"PK\1\2") + 8):
        archive[start] |= 1
    return bytes(archive)


def other_name_in_index() -> bytes:
    archive = bytearray(zipped(("good", b"1")))
    at = archive.rindex(b"good")
    archive[at : at + 4] = b"evil"
    return bytes(archive)


def long_header(kind: bytes) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, 50 << 20
    return gzip.compress(info.tobuf() + bytes(info.size) + tar(("a", b"1")))


def with_header(text: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """An archive whose one file has this header of pax."""
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, len(text)
    return info.tobuf() + text + bytes(-len(text) % tarfile.BLOCKSIZE) + tar(("a", b"1"))


def negative_size() -> bytes:
    block = bytearray(tarfile.TarInfo("x").tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"\xff" * 12
    return _summed(block) + tar(("a", b"1"))


def _summed(block: bytearray) -> bytes:
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    return bytes(block)


def sparse_back() -> bytes:
    """A sparse file whose two parts are the same bytes, or lie before it."""
    info = tarfile.TarInfo("x")
    info.size = 512
    info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "x"}
    info.pax_headers |= {"GNU.sparse.map": "0,-512,512,512", "GNU.sparse.size": "1024"}
    return info.tobuf(tarfile.PAX_FORMAT) + bytes(1024)


def bytes_of_zero(count: int) -> bytes:
    return tar(("zero", bytes(count)), mode="w:xz")


HUGE_XZ = lzma.compress(tar(("a", b"1")), filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 512 << 20}])
BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "an absolute path": (lambda: tar(("/etc/x", b"1")), "'/etc/x' has an absolute path"),
    "an absolute path in a zip": (lambda: zipped(("/etc/x", b"1")), "'/etc/x' has an absolute path"),
    "the folder above": (lambda: tar(("a", b"1"), ("../x", b"1")), "'../x' has a path with .."),
    "the folder above in a zip": (lambda: zipped(("d/../../x", b"1")), "'d/../../x' has a path with .."),
    "the folder above of a folder": (lambda: tar(("..", None)), "'..' has a path with .."),
    "a way back in": (lambda: tar(("d/../x", b"1")), "'d/../x' has a path with .."),
    "a backslash": (lambda: zipped(("..\\x", b"1")), r"'..\\x' has a backslash in its name"),
    "an absolute link": (
        lambda: tar(("l", ("link", "/etc/passwd"))),
        "'l' is a link to '/etc/passwd', which",
    ),
    "an absolute link in a zip": (lambda: zipped(("l", ("link", "/etc"))), "'l' is a link to '/etc', which leads out"),
    "a link out": (lambda: tar(("d/l", ("link", "../../x"))), "'d/l' is a link to '../../x', which leads out"),
    "a link out and in": (lambda: tar(("l", ("link", "../workspace/x"))), "'l' is a link to '../workspace/x'"),
    "a link out through another": (
        lambda: tar(("d/up", ("link", "..")), ("out", ("link", "d/up/../x"))),
        "'out' is a link to 'd/up/../x', which leads out",
    ),
    "a link to nothing": (lambda: zipped(("l", ("link", ""))), "'l' is a link to ''"),
    "a file through a link": (lambda: tar(("l", ("link", "d")), ("l/x", b"1")), "'l' is in it twice"),
    "a folder through a link": (lambda: tar(("l", ("link", "d")), ("l/x", None)), "'l' is in it twice"),
    "a hard link out": (lambda: tar(("h", ("hard link", "/etc/passwd"))), "'h' has an absolute path"),
    "a hard link up": (lambda: tar(("h", ("hard link", "../x"))), "'h' has a path with .."),
    "a hard link to nothing": (lambda: tar(("h", ("hard link", "x"))), "'h' is a hard link to 'x', but no file"),
    "a hard link to a folder": (lambda: tar(("d", None), ("h", ("hard link", "d"))), "'h' is a hard link to 'd'"),
    "a hard link to a link": (
        lambda: tar(("l", ("link", "x")), ("h", ("hard link", "l"))),
        "'h' is a hard link to 'l', but no file",
    ),
    "a FIFO": (lambda: tar(("f", ("fifo", ""))), "'f' is a FIFO"),
    "a device": (lambda: tar(("f", ("character device", ""))), "'f' is a device"),
    "a disk": (lambda: tar(("f", ("block device", ""))), "'f' is a device"),
    "an unknown kind": (lambda: tar(("f", ("odd", ""))), "'f' is of an unknown kind"),
    "a FIFO in a zip": (lambda: zipped(("f", ("fifo", ""))), "'f' is a device, a FIFO or a socket"),
    "a socket in a zip": (lambda: zipped(("f", ("socket", ""))), "'f' is a device, a FIFO or a socket"),
    "a file twice": (lambda: tar(("a", b"1"), ("./a", b"2")), "'./a' is in it twice"),
    "a link twice": (lambda: tar(("a", ("link", "b")), ("a", ("link", "c"))), "'a' is in it twice"),
    "a file and a link": (lambda: tar(("a", ("link", "b")), ("a", b"1")), "'a' is in it twice"),
    "a file and a folder": (lambda: tar(("a", None), ("a", b"1")), "'a' is in it twice"),
    "a file below a file": (lambda: tar(("a", b"1"), ("a/b", b"2")), "'a/b' is below a file of the archive"),
    "a name that is not UTF-8": (lambda: tar(("caf\udce9", b"1")), r"'caf\udce9' has a name that is not UTF-8"),
    "such a name in a zip": (
        lambda: zipped(("caf\xe9", b"1")).replace(b"\xc3\xa9", b"\xe9\xe9"),
        r"'caf\\xe9\\xe9' has a name that is not UTF-8",
    ),
    "such a name without a mark": (lambda: zipped(("cafA", b"1")).replace(b"cafA", b"caf\xe9"), "not UTF-8"),
    "a NUL": (lambda: zipped(("a?b", b"1")).replace(b"a?b", b"a\0b"), r"'a\x00b' has a NUL"),
    "a long name": (lambda: tar(("x" * 256, b"1")), "a name in it of more than 255"),
    "a long path": (lambda: tar(("/".join(["x" * 200] * 25)[:4800], b"1")), "a path of more than 4,000 bytes"),
    "many folders": (lambda: tar(("d/" * 101 + "x", b"1")), "is more than 100 directories deep"),
    "an encrypted entry": (encrypted_zip, "'secret' is encrypted"),
    "another compression": (lambda: zipped(("a", b"1"), compression=zipfile.ZIP_LZMA), "'a' is neither stored nor"),
    "a size that is too small": (lambda: lying_zip(999), "'a' cannot be read: Bad CRC-32"),
    "a size that is too large": (lambda: lying_zip(1001), "'a' has not as many bytes as it should have"),
    "two names": (other_name_in_index, "'evil' cannot be read: "),
    "a damaged content": (
        lambda: zipped(("a", b"1234"), compression=zipfile.ZIP_STORED).replace(b"1234", b"1239"),
        "'a' cannot be read: Bad CRC-32",
    ),
    "a tar that ends in a file": (lambda: tar(("a", bytes(5000)))[:2000], "'a' cannot be read: "),
    "a tar that ends after a file": (lambda: tar(("a", bytes(512)), ("b", b"1"))[:1024], "it ends too early"),
    "a tar that ends in a header": (lambda: tar(("a", bytes(512)), ("b", b"1"))[:1500], "it ends too early"),
    "half a tar.gz": (lambda: tar(("a", os.urandom(50_000)), mode="w:gz")[:30_000], "'a' cannot be read"),
    "half a tar.bz2": (lambda: tar(("a", os.urandom(50_000)), mode="w:bz2")[:30_000], "cannot be read: "),
    "half a tar.xz": (lambda: tar(("a", os.urandom(50_000)), mode="w:xz")[:30_000], "'a' cannot be read"),
    "half a zip": (lambda: zipped(("a", os.urandom(50_000)))[:30_000], "the archive cannot be read"),
    "bytes that are changed": (
        lambda: tar(("a", bytes(512)), ("b", b"1")).replace(b"ustar", b"uxtar"),
        "the archive cannot be read: ",
    ),
    "no archive": (lambda: b"hello", "the archive cannot be read: it is neither zip nor tar"),
    "nothing": (lambda: b"", "it is neither zip nor tar (empty file)"),
    "zstd": (lambda: b"\x28\xb5\x2f\xfd" + bytes(100), "zstd is not supported"),
    "much memory for xz": (lambda: HUGE_XZ, "Memory usage limit exceeded"),
    "a long header of pax": (
        lambda: long_header(tarfile.XHDTYPE),
        "refused: the headers before an entry exceed 16 KiB",
    ),
    "a long header of GNU": (
        lambda: long_header(tarfile.GNUTYPE_LONGNAME),
        "refused: the headers before an entry exceed 16 KiB",
    ),
    "headers for all": (
        lambda: with_header(b"".join(b"8 k%03d=\n" % n for n in range(101)), tarfile.XGLTYPE),
        "'a' comes after more than 100 headers for all entries",
    ),
    "a size below zero": (negative_size, "cannot be read: |below zero"),
    "a part that lies before": (sparse_back, "'x' cannot be read: "),
    "a bomb": (lambda: bytes_of_zero(bounds.SMALL_BYTES + 1), "'zero' makes the content more than 200 times as large"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_archive_is_refused_by_the_name_of_its_entry_and_nothing_is_left(name: str, root: Path) -> None:
    make, said = BAD[name]
    outside = tree(root.parent)
    with pytest.raises(Invalid) as caught:
        await made_of(make(), root, max_bytes=1 << 30)
    assert any(each in caught.value.detail for each in said.split("|")), caught.value.detail
    assert caught.value.detail.startswith("the archive is refused: ")
    assert [error["pointer"] for error in caught.value.errors] == ["/workspace/upload"]
    assert [path.name for path in root.iterdir()] == ["uploads"]
    assert {path for path in tree(root.parent) if "uploads" not in path} == {*outside}


async def test_an_archive_with_more_bytes_than_allowed_is_refused_with_the_file(root: Path) -> None:
    for number, archive in enumerate(
        [tar(("a", bytes(600)), ("b", bytes(600))), zipped(("a", bytes(600)), ("b", bytes(600)))]
    ):
        with pytest.raises(Invalid, match="too large to be extracted: with b it has more than"):
            await made_of(archive, root, f"dlg_{number}", max_bytes=1199)
        await (await made_of(archive, root, f"dlg_{number}", max_bytes=1200)).remove()


async def test_hard_links_count_because_the_copy_for_the_comparison_has_each(root: Path) -> None:
    archive = tar(("a", bytes(600)), *((f"h{number}", ("hard link", "a")) for number in range(3)))
    with pytest.raises(Invalid, match="with h2 it has more than"):
        await made_of(archive, root, max_bytes=2399)
    await (await made_of(archive, root, max_bytes=2400)).remove()


@pytest.mark.costly
async def test_more_entries_than_allowed_are_refused(root: Path) -> None:
    count = bounds.MAX_ENTRIES + 1
    block = tarfile.TarInfo(".")  # the top, for which nothing is made
    block.type = tarfile.DIRTYPE
    archive = gzip.compress(block.tobuf() * count + bytes(1024), 1)
    with pytest.raises(Invalid, match="one more than the 200,000 entries"):
        await made_of(archive, root)


@pytest.mark.parametrize("piece", [b"1", b"2 ", b"2 a", b"11 GNU.sparse.offset=1", b"9999999 k="])
def test_no_header_of_a_tar_takes_much_time_or_memory(piece: bytes, tmp_path: Path) -> None:
    """The longest one that is read; the interpreter's lock is held meanwhile."""
    size = archive_formats.MAX_HEADER_BYTES - 4 * tarfile.BLOCKSIZE
    (path := tmp_path / "a.tar").write_bytes(with_header((piece * size)[:size] + b"="))
    tracemalloc.start()
    begun = time.thread_time()
    with path.open("rb") as file, suppress(archive_formats.BadEntry):
        assert [entry.name for entry in archive_formats.entries_of(file)] == ["a"]
    took, (_, most) = time.thread_time() - begun, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < 1
    assert most < 100 << 20


async def test_a_large_index_of_a_zip_is_not_read(root: Path) -> None:
    size = archive_formats.MAX_INDEX_BYTES + 1
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, size, 4, 0)
    with pytest.raises(Invalid, match="its index is too large"):
        await made_of(b"PK\3\4" + bytes(size) + end, root)


async def test_where_service_and_worker_share_no_folder_the_error_shows_the_remedy(root: Path) -> None:
    spec = ArchiveWorkspace(kind="archive", upload=f"sha256:{'0' * 64}")
    with pytest.raises(Invalid, match="Put DEPUTIZE_WORKSPACE_ROOT of the service and of all workers on one volume"):
        await Workspace.create(spec, "dlg_1", root)


async def test_a_cancelled_extraction_ends_at_once_and_leaves_nothing(root: Path) -> None:
    """The loop goes on meanwhile: it is the loop that cancels."""
    archive = tar(*((f"{number:03}", os.urandom(1000) * 2000) for number in range(100)), mode="w:gz", compresslevel=1)
    spec, tally = store(root, archive), CopyTally()
    making = asyncio.create_task(Workspace.create(spec, "dlg_1", root, tally=tally))
    await until(lambda: tally.files > 3)
    began = time.monotonic()
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert tally.files < 100
    assert time.monotonic() - began < 5
    assert [path.name for path in root.iterdir()] == ["uploads"]


async def test_the_loop_is_not_blocked_while_an_archive_is_extracted(root: Path) -> None:
    archive = tar(*((f"d{number % 50}/{number}", b"x" * 100) for number in range(5000)), mode="w:gz")
    async with lag_probe() as lag:
        workspace = await made_of(archive, root)
    await workspace.remove()
    assert lag.longest < 0.5


@pytest.mark.parametrize("format", ["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"])
async def test_whatever_is_changed_in_an_archive_it_is_extracted_or_refused(format: str, root: Path) -> None:
    """Any other exception would end the run as an internal error."""
    whole, chance = FORMATS[format](), random.Random(format)
    for number in range(150):
        changed = bytearray(whole)
        for _ in range(chance.choice([1, 1, 3, 20])):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            workspace = await made_of(bytes(changed), root, f"dlg_{number}", max_bytes=10 << 20)
        except Invalid:
            continue
        await workspace.remove()
