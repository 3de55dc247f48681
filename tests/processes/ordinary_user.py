"""What root's tests do as an ordinary user, wherever the checkout lies: also where only root may enter.

There this user's processes get a view of the machine of their own, in a mount namespace: each closed folder on the way
is replaced by one that holds nothing but the way. What lies at its end is mounted there; the source is copied, because
its files may be closed, too, as a umask of 077 makes them. Nothing of it is seen outside, or stays.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from deputize.shared.libc import LIBC

ORDINARY_UID = 61001
ROOT = Path(__file__).resolve().parents[2]
SOURCE = (".package", "orchestrator", "shared", "worker", "tests")
_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_TRIED = "import deputize.worker.tools, deputize.orchestrator"


def become_ordinary() -> None:
    """Gives up root for good, with a view of the machine in which this checkout and its interpreter can be reached."""
    open_the_way([ROOT / ".venv", Path(sys.base_prefix).resolve()], [ROOT / name for name in SOURCE])
    os.setgroups([])
    os.setresgid(ORDINARY_UID, ORDINARY_UID, ORDINARY_UID)
    os.setresuid(ORDINARY_UID, ORDINARY_UID, ORDINARY_UID)


def need_ordinary_user() -> None:
    """Skips what only root can show, and what needs a user who can reach this checkout; in CI the latter fails."""
    if os.geteuid() != 0:
        pytest.skip(f"SKIPPED for want of root: this user is {os.geteuid()}")
    if reason := _unreachable():
        fail = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        fail(f"SKIPPED: no ordinary user can run what lies in {ROOT} ({reason}); move it out of closed folders")


@contextmanager
def home_of_an_ordinary_user() -> Generator[Path]:
    """A directory that user can reach, which those of pytest are not; the test must be root."""
    home = Path(tempfile.mkdtemp(dir="/tmp"))
    os.chown(home, ORDINARY_UID, ORDINARY_UID)
    try:
        yield home
    finally:
        shutil.rmtree(home)


@functools.cache
def _unreachable() -> str:
    """Why that user cannot run the programs of this checkout, or nothing."""
    run = f"os.execv(sys.executable, [sys.executable, '-I', '-c', {_TRIED!r}])"
    become = f"from tests.processes.ordinary_user import become_ordinary; import os, sys; become_ordinary(); {run}"
    done = subprocess.run([sys.executable, "-c", become], cwd=ROOT, capture_output=True, text=True)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


def open_the_way(mounted: Sequence[Path], copied: Sequence[Path]) -> None:
    """Does nothing where every folder on the way is open."""
    closed = {folder for place in (*mounted, *copied) if (folder := _first_closed(place))}
    if not closed:
        return
    before = os.umask(0o022)
    _checked(LIBC.unshare(_CLONE_NEWNS), "unshare")
    _mount("none", Path("/"), _MS_REC | _MS_PRIVATE)
    sources = {place: os.open(place, os.O_PATH) for place in (*mounted, *copied)}  # soon they have no path
    for folder in closed:
        _mount("tmpfs", folder, 0, "mode=755")
    for place, source in sources.items():
        if closed.isdisjoint((place, *place.parents)):
            continue
        place.mkdir(parents=True, exist_ok=True)
        if place in mounted:
            _mount(f"/proc/self/fd/{source}", place, _MS_BIND | _MS_REC)
        else:
            copy = ["cp", "-r", "--no-preserve=mode", f"/proc/self/fd/{source}/.", str(place)]
            subprocess.run(copy, check=True, pass_fds=[source])
        os.close(source)
    os.umask(before)


def _first_closed(place: Path) -> Path | None:
    """The outermost folder on the way to a place, or the place, that other users may not enter."""
    return next((each for each in (*reversed(place.parents), place) if not each.stat().st_mode & stat.S_IXOTH), None)


def _mount(source: str, target: Path, flags: int, data: str = "") -> None:
    kind = source if data else "none"
    _checked(LIBC.mount(source.encode(), os.fsencode(target), kind.encode(), flags, data.encode()), f"mount {target}")


def _checked(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
