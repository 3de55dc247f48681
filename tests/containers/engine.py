"""A container engine for a while: the one that answers here, or on Debian one of its packages, as root.

An engine of its own lives in namespaces of its own, with everything that it makes in one folder. It ends with this
program, and nothing of it stays but four small packages of the machine (``_OF_MACHINE``). There `stand_in` makes the
images that others build upon, for which no registry is asked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import until_sync

_NEWEST = "sid"
_PACKAGES = ("docker.io", "docker-cli", "containerd", "docker-buildx", "tini")
"""Debian's stable ones are too old for docker-compose.yml."""
_OF_MACHINE = ("runc", "iptables", "slirp4netns", "debootstrap")
_IN_STAND_IN = "ca-certificates,netbase,python3,python3-pip,python3-venv,valkey-server,valkey-tools"
_DNS = "10.0.2.3"
_STARTED = """
mount --make-rprivate /
mount -t tmpfs tmpfs /run
until ip link show tap0 >/dev/null 2>&1; do sleep 0.1; done
echo nameserver "$2" >"$1/resolv.conf"
mount --bind "$1/resolv.conf" /etc/resolv.conf
exec dockerd --host "unix://$1/docker.sock" --data-root "$1/data" --exec-root "$1/exec" --pidfile "$1/pid" \\
    --init-path "$1/engine/usr/bin/tini"
"""
_STAND_IN = """
rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/* "$1"/usr/share/doc "$1"/usr/share/man "$1"/usr/share/locale
rm -f "$1/etc/resolv.conf"
ln -s python3 "$1/usr/bin/python"
install -d -o 999 -g 1000 "$1/data"
tar -C "$1" -c . | docker import --change 'WORKDIR /data' - "$2"
"""


class Unavailable(Exception):
    """There is no engine here, or something that it needs cannot be reached."""


@dataclass(frozen=True)
class Engine:
    """An engine that answers. ``environ`` is for programs that use it."""

    environ: Mapping[str, str]
    folder: Path | None = None
    """Where an engine of our own keeps everything."""


@contextmanager
def engine() -> Generator[Engine]:
    """Yields an engine. Raises Unavailable with the reason where none can be had."""
    if _answers(os.environ):
        if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
            raise Unavailable("the engine here has no `docker compose`")
        yield Engine(dict(os.environ))
        return
    missing = [name for name in ("apt-get", "dpkg-deb", "unshare", "ip") if not shutil.which(name)]
    if os.geteuid() or missing:
        raise Unavailable(f"no engine answers, and only root on Debian can start one{_listed(missing)}")
    folder = Path(tempfile.mkdtemp(prefix="deputize-engine-"))
    try:
        _unpack(folder)
        with _running(folder) as found:
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _listed(missing: list[str]) -> str:
    return f" ({', '.join(missing)} is missing)" if missing else ""


def _answers(environ: Mapping[str, str]) -> bool:
    with suppress(OSError):
        return not subprocess.run(["docker", "version"], env=environ, capture_output=True).returncode
    return False


def _unpack(folder: Path) -> None:
    """Unpacks Debian's newest engine below the folder; the machine's packages stay as they are."""
    if lacking := [name for name in _OF_MACHINE if not shutil.which(name)]:
        _apt({}, folder, "update")
        _apt({}, folder, "install", "--yes", "--no-install-recommends", *lacking)
    apt = folder / "apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "sources.list").write_text(f"deb [signed-by={_keyring()}] {mirror()} {_NEWEST} main\n")
    (apt / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{apt}/sources.list"; Dir::Etc::sourceparts "-"; Dir::State::lists "{apt}/lists";\n'
        f'Dir::State::status "{apt}/status"; Dir::Cache "{apt}/cache"; APT::Sandbox::User "root";\n'
    )
    _apt({"APT_CONFIG": f"{apt}/apt.conf"}, apt, "update")
    _apt({"APT_CONFIG": f"{apt}/apt.conf"}, apt, "download", *_PACKAGES)
    for package in apt.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder / "engine"], check=True)


def _apt(environ: Mapping[str, str], cwd: Path, *arguments: str) -> None:
    done = subprocess.run(["apt-get", "-qq", *arguments], cwd=cwd, env={**os.environ, **environ}, capture_output=True)
    if done.returncode:
        raise Unavailable(f"apt-get {arguments[0]} failed: {last_line(done.stderr)}")


def last_line(output: bytes) -> str:
    return output.decode(errors="replace").strip().rpartition("\n")[2]


def _keyring() -> Path:
    return next(iter(sorted(Path("/usr/share/keyrings").glob("debian-archive-keyring.*"))), Path("/none"))


def mirror() -> str:
    """The address that this machine has Debian's packages from."""
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(SITE)", "Created-By: Packages"]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    sites = [line.split()[1] for line in lines if line.startswith("Debian ")]
    if not sites:
        raise Unavailable("apt-get knows no package of Debian's here")
    return sites[0]


@contextmanager
def _running(folder: Path) -> Generator[Engine]:
    own = folder / "engine/usr"
    environ = {
        **os.environ,
        "PATH": f"{own}/sbin:{own}/bin:{os.environ['PATH']}:/usr/sbin:/sbin",
        "DOCKER_HOST": f"unix://{folder}/docker.sock",
        "DOCKER_CONFIG": str(folder / "client"),
    }
    plugins = folder / "client/cli-plugins"
    plugins.mkdir(parents=True)
    (plugins / "docker-buildx").symlink_to(own / "libexec/docker/cli-plugins/docker-buildx")
    (plugins / "docker-compose").symlink_to(Path(sys.executable).with_name("docker-compose"))
    namespaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with (folder / "log").open("wb") as log:
        started = [*namespaces, "sh", "-ec", _STARTED, "sh", str(folder), _DNS]
        process = subprocess.Popen(started, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        slirp: subprocess.Popen[bytes] | None = None
        try:
            connected = ["slirp4netns", "--configure", "--mtu=65520", "--disable-host-loopback"]
            slirp = subprocess.Popen([*connected, str(_child(process)), "tap0"], stdout=log, stderr=log, env=environ)
            _wait_until_it_answers(environ, process, folder / "log")
            yield Engine(environ, folder)
        finally:
            for each in (process, slirp):
                if each:
                    each.kill()
                    each.wait()


def _child(process: subprocess.Popen[bytes]) -> int:
    """The process inside the new namespaces."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until_sync(lambda: process.poll() is not None or children.read_text())
    if process.returncode is not None:
        raise Unavailable("unshare cannot make namespaces here")
    return int(children.read_text().split()[0])


def _wait_until_it_answers(environ: Mapping[str, str], process: subprocess.Popen[bytes], log: Path) -> None:
    try:
        until_sync(lambda: process.poll() is not None or _answers(environ))
        assert process.returncode is None, f"exit code {process.returncode}"
    except AssertionError as error:
        raise Unavailable(f"Debian's engine does not start ({error}): {last_line(log.read_bytes())}") from None


def stand_in(found: Engine, suite: str, name: str) -> None:
    """Makes an image of Debian's packages with Python and the server of Redis's protocol."""
    assert found.folder
    base = str(found.folder / "base")
    command = ["debootstrap", "--variant=minbase", f"--include={_IN_STAND_IN}", suite, base, mirror()]
    for each in (command, ["sh", "-ec", _STAND_IN, "sh", base, name]):
        done = subprocess.run(each, env=found.environ, capture_output=True)
        if done.returncode:
            raise Unavailable(f"no base image can be made: {last_line(done.stdout)} {last_line(done.stderr)}".strip())
    shutil.rmtree(base)
