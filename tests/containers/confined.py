"""`python -m tests.containers.confined FILE`: starts a program in a container, as the JSON in FILE describes it.

It does what an engine does, with the same system calls in the same order: namespaces, a file system of its own, no
capabilities, the image's user, and last the seccomp filter. It must be started by root. It ends with the program's exit
code, and the program ends with it.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from deputize.shared.libc import LIBC
from deputize.shared.own_process import send_on_death_of_parent
from tests.containers import profile

_NEW_MOUNTS, _NEW_NAMES, _NEW_IPC, _NEW_PIDS, _NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT = 1, 2, 4, 8, 32
_BIND, _REC, _PRIVATE = 1 << 12, 1 << 14, 1 << 18
_DETACH = 2
_CAPBSET_DROP, _SET_SECCOMP, _NO_NEW_PRIVS = 24, 22, 38
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "nsswitch.conf", "ssl", "localtime", "mime.types")
MASKED = ("kcore", "keys", "timer_list", "interrupts")
READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
"""Of /proc: what engines hide, and what they make read-only."""


@dataclass(frozen=True)
class Mount:
    """A path of the host that appears as ``target``."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Container:
    """One container, as an engine is told to make it."""

    image: list[Mount]
    """Its file system: directories of this machine, read-only."""
    argv: list[str]
    environ: dict[str, str]
    cwd: str
    uid: int
    gid: int
    groups: list[int] = field(default_factory=list[int])
    keeps_capabilities: bool = False
    no_new_privileges: bool = True
    read_only: bool = True
    shows_proc: bool = False
    """Whether all of /proc is shown: ``systempaths=unconfined``, ``procMount: Unmasked``."""
    seccomp: str = ""
    """The file of the profile; without one no filter is installed."""
    tmpfs: list[str] = field(default_factory=list[str])
    mounts: list[Mount] = field(default_factory=list[Mount])
    init: bool = False
    """Whether the program has an init above it, or is the first process itself."""
    network: str = ""
    """The file of a network namespace."""
    module: str = ""
    """The module whose ``main()`` is called with the arguments, instead of a program: it may be imported already."""

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: Path) -> Container:
        found = json.loads(path.read_text())
        lists = {name: [Mount(**each) for each in found[name]] for name in ("image", "mounts")}
        return cls(**(found | lists))


def main() -> int:
    file = Path(sys.argv[1])
    container = Container.read(file)
    if container.module:
        importlib.import_module(container.module)  # there are no tests in the image
    send_on_death_of_parent(signal.SIGKILL)
    program = profile.compiled(Path(container.seccomp)) if container.seccomp else b""
    if container.network:
        with Path(container.network).open() as network:
            _done(LIBC.setns(network.fileno(), _NEW_NET), "setns")
    _done(LIBC.unshare(_NEW_MOUNTS | _NEW_NAMES | _NEW_IPC | _NEW_PIDS), "unshare")
    first = os.fork()
    if first == 0:
        send_on_death_of_parent(signal.SIGKILL)
        _mount("none", "/", _REC | _PRIVATE)
        _build(container, _made(file.with_suffix(".root")))
        if not container.init:
            _become(container, program)
        os._exit(_wait_for(_started(container, program)))
    return _wait_for(first)


def _started(container: Container, program: bytes) -> int:
    if child := os.fork():
        return child
    _become(container, program)
    raise AssertionError("a program took its place")


def _wait_for(child: int) -> int:
    """Waits for the child, passes the signals that stop on to it, and ends as it does."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(child, number))
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _build(container: Container, root: Path) -> None:
    """Makes the file system at that folder, and makes it that of this process."""
    _mount("tmpfs", root, _NOSUID | _NODEV, "mode=755")
    for name in ("bin", "sbin", "lib", "lib64"):
        if (path := Path("/", name)).is_symlink():
            (root / name).symlink_to(path.readlink())
    _build_etc(root / "etc", container)
    _build_dev(root / "dev")
    _mount("proc", _made(root / "proc"), _NOSUID | _NODEV | _NOEXEC)
    _mount("sysfs", _made(root / "sys"), _RDONLY | _NOSUID | _NODEV | _NOEXEC)
    if not container.shows_proc:
        _hide(root / "proc")
    _made(root / "tmp").chmod(0o1777)
    tmpfs = [Mount("", target) for target in container.tmpfs]
    for each in sorted([*container.image, *tmpfs, *container.mounts], key=lambda each: each.target.count("/")):
        _bind(root, each)  # the outer ones first, as an engine does: else they hide what is mounted inside them
    _made(root / container.cwd.lstrip("/"))
    if container.read_only:
        _mount("none", root, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
    os.chdir(root)
    _done(LIBC.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    _done(LIBC.umount2(b".", _DETACH), "umount2")
    os.chdir("/")


def _build_etc(etc: Path, container: Container) -> None:
    etc.mkdir()
    for name in _ETC:
        source = Path("/etc", name)
        if source.is_dir():
            shutil.copytree(source, etc / name, symlinks=True)
        elif source.exists():
            shutil.copy(source, etc / name)
    (etc / "passwd").write_text(f"root:x:0:0::/root:/bin/sh\napp:x:{container.uid}:{container.gid}::/tmp:/bin/sh\n")
    (etc / "group").write_text(f"root:x:0:\napp:x:{container.gid}:\n")
    (etc / "hosts").write_text("127.0.0.1 localhost redis\n")


def _build_dev(dev: Path) -> None:
    _mount("tmpfs", _made(dev), _NOSUID, "mode=755")
    for name in _DEVICES:
        (dev / name).touch()
        _mount(f"/dev/{name}", dev / name, _BIND)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        (dev / name).symlink_to(f"/proc/self/fd{target}")
    _mount("devpts", _made(dev / "pts"), _NOSUID | _NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    (dev / "ptmx").symlink_to("pts/ptmx")
    _mount("tmpfs", _made(dev / "shm"), _NOSUID | _NODEV | _NOEXEC, "mode=1777,size=64m")


def _hide(proc: Path) -> None:
    for name in MASKED:
        if (proc / name).exists():
            _mount("/dev/null", proc / name, _BIND)
    for name in filter(lambda name: (proc / name).exists(), READ_ONLY):
        _mount(str(proc / name), proc / name, _BIND | _REC)
        _mount("none", proc / name, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV | _NOEXEC)


def _bind(root: Path, each: Mount) -> None:
    """Mounts the source, or a new file system in memory where there is none."""
    source, target = Path(each.source), root / each.target.lstrip("/")
    if not each.source:
        _mount("tmpfs", _made(target), _NOSUID | _NODEV | _NOEXEC, "mode=1777")
        return
    if source.is_dir():
        _made(target)
    else:
        _made(target.parent)
        target.touch()
    _mount(each.source, target, _BIND | _REC)
    if each.read_only:
        _mount("none", target, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)


def _become(container: Container, program: bytes) -> None:
    """Takes everything away from this process that the container does not have, and becomes its program."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if not container.keeps_capabilities:
        for capability in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
            _prctl(_CAPBSET_DROP, capability)
    os.chdir(container.cwd)
    os.setgroups(container.groups)
    os.setresgid(container.gid, container.gid, container.gid)
    os.setresuid(container.uid, container.uid, container.uid)
    if container.no_new_privileges:
        _prctl(_NO_NEW_PRIVS, 1)
    os.umask(0o022)
    if program:
        _done(LIBC.prctl(_SET_SECCOMP, 2, ctypes.byref(profile.as_filter(program)), 0, 0), "the seccomp filter")
    if container.module:
        os.environ.clear()
        os.environ.update(container.environ)
        tempfile.tempdir = None
        sys.argv = container.argv
        sys.exit(importlib.import_module(container.module).main())
    found = shutil.which(container.argv[0], path=container.environ["PATH"]) or container.argv[0]
    os.execve(found, container.argv, container.environ)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _mount(source: str, target: str | Path, flags: int, data: str = "") -> None:
    kind = "none" if flags & (_BIND | _REMOUNT | _PRIVATE) else source
    _done(LIBC.mount(source.encode(), os.fsencode(target), kind.encode(), flags, data.encode()), f"mount {target}")


def _prctl(option: int, value: int) -> None:
    _done(LIBC.prctl(option, value, 0, 0, 0), f"prctl {option}")


def _done(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    raise SystemExit(main())
