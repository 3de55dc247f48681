"""Opening below a directory: paths that C would cut, and paths longer than the kernel takes."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deputize.shared.errors import Misconfigured
from deputize.shared.libc import beneath, require_openat2

NAME = "d" * 200
RENAMES = """
import os, sys
os.chdir(sys.argv[1])
print(flush=True)
while True:
    os.rename("moving", "moved")
    os.rename("moved", "moving")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)
    subprocess.run(["rm", "-rf", tmp_path / NAME], check=True)


def test_a_nul_character_does_not_lead_to_another_file(folder: int, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with pytest.raises(OSError, match="NUL character"):
        beneath(folder, "a\0b", os.O_RDONLY)


def test_a_path_longer_than_the_kernel_takes_is_opened_step_by_step(folder: int) -> None:
    at, depth = os.dup(folder), 50
    for _ in range(depth):
        os.mkdir(NAME, dir_fd=at)
        deeper = os.open(NAME, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = deeper
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    opened = beneath(folder, "/".join([NAME] * depth), os.O_RDONLY | os.O_DIRECTORY)
    assert os.fstat(opened).st_ino == os.fstat(at).st_ino
    os.close(opened)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    os.close(at)


def test_a_rename_elsewhere_is_waited_out_and_only_so_many_of_them(folder: int, tmp_path: Path) -> None:
    """The kernel gives up at ``..`` when anything is renamed meanwhile: it is asked again, but not for ever."""
    (tmp_path / "a").mkdir()
    (tmp_path / "moving").touch()
    opened, refused = 0, list[int | None]()
    command = [sys.executable, "-c", RENAMES, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as renaming:
        assert renaming.stdout is not None
        renaming.stdout.read(1)
        try:
            deadline = time.monotonic() + 60
            while (opened < 2000 or not refused) and time.monotonic() < deadline:
                length = 20 if opened < 2000 else 700  # of the long way no try is ever fast enough
                try:
                    os.close(beneath(folder, "a/../" * length + "a", os.O_RDONLY | os.O_DIRECTORY))
                    opened += 1
                except OSError as error:
                    refused.append(error.errno)
        finally:
            renaming.kill()
    assert opened >= 2000
    assert {*refused} == {errno.EXDEV}


def test_a_machine_without_it_is_reported_with_what_it_lacks() -> None:
    require_openat2()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/", os.O_PATH)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))  # the root can be opened, and nothing below it
    try:
        with pytest.raises(Misconfigured, match=r"openat2 does not work here \(Too many open files\)"):
            require_openat2.__wrapped__()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
