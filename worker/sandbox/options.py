"""What is alike for all sandboxes: options for namespaces, devices and limits, and what comes before a command."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from ...shared.settings import SandboxSettings
from . import environment
from .environment import SCRATCH
from .process import GUARD_SHELL, SHELL_SCRIPTS

_NAMESPACES = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--hostname", environment.HOST),
    *("--disable-userns", "--die-with-parent", "--new-session", "--clearenv", "--uid", "1000", "--gid", "1000"),
)
_DEVICES = (
    *("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"),
    *("--size", str(16 << 20), "--perms", "1777", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108
)
READING_PROGRAMS = "/.guard/bin"
"""Where programs lie that take the place of the system's for command lines that only read."""


def isolation_options(limits: SandboxSettings, fds: list[int]) -> list[str]:
    """Returns the options of the namespaces and of everything that the sandbox has of its own.

    Adds the descriptors that the options name to ``fds``.
    """
    options = [*_NAMESPACES, *environment.system_directories()]
    for name, content in environment.ETC.items():
        options += ["--perms", "0444", "--ro-bind-data", str(memfd("etc", content.encode(), fds)), f"/etc/{name}"]
    # Unreadable, so that commands cannot inspect or change its process, even with the same owner.
    shell = str(memfd("guard", _read(Path("/bin/sh")), fds))
    options += ["--perms", "0111", "--ro-bind-data", shell, GUARD_SHELL]
    return [*options, *_DEVICES, "--size", str(limits.tmp_bytes), "--perms", "1777", "--tmpfs", SCRATCH]


def reading_options(fds: list[int]) -> list[str]:
    """Returns the options for what takes the place of programs that would start others. Adds to ``fds``."""
    git = str(memfd("git", _read(Path(__file__).with_name("reading_git.sh")), fds))
    folder = ["--perms", "0755", "--dir", READING_PROGRAMS]
    return [*folder, "--perms", "0555", "--ro-bind-data", git, f"{READING_PROGRAMS}/git"]


def guarded(limits: SandboxSettings, script: str) -> list[str]:
    """Returns what comes before a command's arguments: its limits and the guard."""
    most = {"nproc": limits.processes, "fsize": limits.file_bytes, "nofile": 1024, "core": 0}
    bounds = [f"--{name}={_allowed(getattr(resource, f'RLIMIT_{name.upper()}'), most[name])}" for name in most]
    return [environment.system_program("prlimit"), *bounds, "--", GUARD_SHELL, "-c", script, "guard"]


def _allowed(limit: int, most: int) -> int:
    """Returns the limit that a command gets: the worker's own may be lower, and none may be raised."""
    hard = resource.getrlimit(limit)[1]
    return most if hard == resource.RLIM_INFINITY else min(most, hard)


def refuse_nul(options: Iterable[str]) -> None:
    """Raises ValueError if an option contains a NUL, which separates options."""
    if invalid := next((option for option in options if "\0" in option), None):
        before = invalid.partition("\0")[0][-60:]
        raise ValueError(
            f"a command, its variables and its paths must not contain a NUL character; there is one after {before!r}"
        )


def without_script(argv: Sequence[str], fds: list[int]) -> Sequence[str]:
    """Returns the arguments of a shell that reads its command line from a descriptor; others as they are.

    A line that contains ``pkill -f NAME`` would find its own text among the arguments. Adds the descriptor to ``fds``.
    """
    if argv[0] not in SHELL_SCRIPTS or argv[-2:-1] != ["-c"]:
        return argv
    return [*argv[:-1], SHELL_SCRIPTS[argv[0]].format(memfd("script", os.fsencode(argv[-1]), fds))]


@cache  # either may be upgraded under a running worker
def _read(path: Path) -> bytes:
    return path.read_bytes()


def memfd(name: str, data: bytes, fds: list[int]) -> int:
    """Returns a descriptor from which bubblewrap reads ``data`` and which it closes."""
    fds.append(fd := os.memfd_create(name))
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
