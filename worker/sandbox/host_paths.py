"""Which paths of the host may be shown to commands: never a home itself, nor what holds credentials."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

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
