"""What Python's own modules lack of the C library."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deputize.shared.libc import (
    LIBC,
    allocate,
    is_on_local_disk,
)
from deputize.shared.own_process import (
    HEAPS,
    LARGE_BYTES,
    is_memory_private,
    keep_memory_private,
    return_large_memory,
    send_on_death_of_parent,
)

ROOT = Path(__file__).parents[2]
GET_DEATH_SIGNAL, GET_DUMPABLE, SET_DUMPABLE = 2, 3, 4


def death_signal() -> int:
    number = ctypes.c_int()
    LIBC.prctl(GET_DEATH_SIGNAL, ctypes.byref(number), 0, 0, 0)
    return number.value


def test_the_signal_for_the_end_of_the_parent_is_the_one_that_was_asked_for() -> None:
    before = death_signal()
    try:
        send_on_death_of_parent(signal.SIGTERM)
        assert death_signal() == signal.SIGTERM
    finally:
        send_on_death_of_parent(before)


def test_memory_that_is_private_cannot_be_read_by_other_processes_of_the_user() -> None:
    before = LIBC.prctl(GET_DUMPABLE, 0, 0, 0, 0)
    try:
        LIBC.prctl(SET_DUMPABLE, 1, 0, 0, 0)
        assert not is_memory_private()
        keep_memory_private()
        assert is_memory_private()
        assert LIBC.prctl(GET_DUMPABLE, 0, 0, 0, 0) == 0
    finally:
        LIBC.prctl(SET_DUMPABLE, before, 0, 0, 0)


class _Allocated(ctypes.Structure):
    """``struct mallinfo2``; ``hblkhd`` are the bytes of blocks that go back to the kernel when they are freed."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()  # noqa: SIM905
    )


def returned_later(size: int) -> int:
    """How much of a block of so many bytes goes back to the kernel, when a larger one was freed before."""
    LIBC.mallinfo2.restype = _Allocated
    bytearray(8 << 20)
    before = LIBC.mallinfo2().hblkhd
    block = bytearray(size)
    assert len(block) == size
    return LIBC.mallinfo2().hblkhd - before


def heaps_of_threads() -> int:
    """How many heaps a process has in which eight threads have taken memory at the same time."""
    with ThreadPoolExecutor(8) as threads, tempfile.TemporaryDirectory() as folder:
        together = threading.Barrier(8)
        list(threads.map(lambda _: (together.wait(), bytes(100_000), together.wait()), range(8)))
        written = Path(folder, "heaps")
        LIBC.fopen.restype = ctypes.c_void_p
        file = ctypes.c_void_p(LIBC.fopen(bytes(written), b"w"))
        LIBC.malloc_info(0, file)
        LIBC.fclose(file)
        return written.read_text().count("<heap ")


def in_new_process(what: str, *statements: str) -> int:
    """What a function of this module returns after these statements. A process that has lived has room in its heap."""
    imports = ("from deputize.shared.own_process import *", "from tests.shared.test_libc import *")
    program = "\n".join([*imports, *statements, f"print({what})"])
    clean = {name: text for name, text in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=clean, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_large_blocks_go_back_to_the_kernel_also_after_larger_ones() -> None:
    assert in_new_process("returned_later(4 << 20)") == 0, "the C library does it by itself"
    assert in_new_process("returned_later(4 << 20)", "return_large_memory()") >= 4 << 20
    return_large_memory()
    assert returned_later(LARGE_BYTES // 2) == 0


def test_threads_share_a_few_heaps_and_keep_none_of_their_own() -> None:
    assert in_new_process("heaps_of_threads()") > HEAPS, "the C library does it by itself"
    assert in_new_process("heaps_of_threads()", "return_large_memory()") <= HEAPS


def test_files_of_the_kernel_are_on_no_local_disk() -> None:
    with Path("/proc/self/status").open() as file:
        assert not is_on_local_disk(file.fileno())


def test_space_is_reserved_behind_the_end_of_a_file_which_keeps_its_length(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as file:
        allocate(file.fileno(), 0, 1 << 20)
        status = os.fstat(file.fileno())
        assert (status.st_size, status.st_blocks * 512 >= 1 << 20) == (0, True)
    with (tmp_path / "log").open("rb") as file, pytest.raises(OSError, match="Bad file descriptor"):
        allocate(file.fileno(), 0, 1 << 20)
