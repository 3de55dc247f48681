"""Settings and clones for tests of repositories."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from deputize.shared.git.clones import Clone, Wanted, clone_of
from deputize.shared.git.own import Patience
from deputize.shared.git.remote import remote_of
from deputize.shared.settings import Settings
from tests.network.git_server import TOKEN, USER, GitServer


def settings(home: Path, server: GitServer | None = None, **more: Any) -> Settings:
    """Settings that allow the server's host, and folders as the stack of one machine does."""
    hosts = [server.host] if server else []
    return Settings.load(environ={}, **({"home": home / "home", "git_hosts": hosts, "local": True} | more))


def write_credentials(path: Path, *hosts: str, mode: int = 0o600) -> Path:
    path.write_text("".join(f"http://{USER}:{TOKEN}@{host}\n" for host in hosts))
    path.chmod(mode)
    return path


@contextmanager
def cloned(
    chosen: Settings,
    url: str,
    ref: str | None = None,
    *,
    depth: int = 1,
    since: float | None = None,
    stop: Event | None = None,
    seconds: float = 60,
    most: int = 1 << 30,
) -> Generator[Clone]:
    remote = remote_of(url, chosen)
    wanted = Wanted(remote, ref, depth, time.time() if since is None else since, most)
    with clone_of(chosen.repositories, wanted, Patience(url, stop or Event(), seconds)) as clone:
        yield clone


def everything_below(folder: Path) -> bytes:
    """All names and contents, to search for what must not be there."""
    found = b""
    for path in sorted(folder.rglob("*")):
        found += os.fsencode(path) + b"\n"
        if path.is_file() and not path.is_symlink():
            found += path.read_bytes()
    return found
