"""Commands in repositories that only this project writes: the caches, the clones and the objects of a delivery.

What they write of a failure becomes a kind of failure, by which a program can decide.
"""

from __future__ import annotations

import os
import re
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event
from typing import Literal

from ..errors import RepositoryFailed, RepositoryKind
from ..settings.variables import environment
from ..text import clip, visible
from .command import command_line, own_environment

OwnCommand = Literal[
    "add",
    "apply",
    "commit-tree",
    "diff-tree",
    "fetch",
    "hash-object",
    "interpret-trailers",
    "ls-remote",
    "ls-tree",
    "mktag",
    "mktree",
    "push",
    "read-tree",
    "rev-parse",
    "write-tree",
]
SECONDS = 600.0
"""For one command, with what it sends over the network."""
_LOOK_SECONDS = 0.05
_PART = 1 << 16
"""Bytes that are read at a time; also the most that is kept of what a command writes as its errors."""
_LONGEST_RECORD = 1 << 16
_MEMORY = 2 << 30
"""Bytes of memory of one git process: a list of refs from an untrusted server may have no end."""
_STALLED_SECONDS = 120
_OF_NETWORK = {
    "http.followRedirects": "false",
    "http.lowSpeedLimit": "1",
    "http.lowSpeedTime": str(_STALLED_SECONDS),
    "http.sslVerify": "true",
    "credential.helper": "",
    "core.bigFileThreshold": "32m",  # larger files are not held in memory
    "fetch.recurseSubmodules": "false",
    "fetch.unpackLimit": "1",  # what is fetched is one file, whose size is watched
    "push.negotiate": "true",
    "push.recurseSubmodules": "no",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "core.logAllRefUpdates": "false",
    "core.attributesFile": "/dev/null",
    "core.commentChar": "\x01",  # lines of a message may begin with #
}
_OF_MACHINE = {name: name for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy")}
_OF_MACHINE["SSL_CERT_FILE"] = "GIT_SSL_CAINFO"
"""Variables that say how this machine reaches others, and what git calls them."""


class GitStopped(Exception):
    """What waited for git was cancelled."""


@dataclass(slots=True)
class Patience:
    """How long commands about ``url`` may take together, and what ends them before."""

    url: str = ""
    stop: Event = field(default_factory=Event)
    seconds: float = SECONDS
    watch: Callable[[], None] = lambda: None
    """Called all the while and at the end of each command; what it raises ends the command."""
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.seconds

    def check(self) -> None:
        """Raises GitStopped, or RepositoryFailed when the time is over."""
        if self.stop.is_set():
            raise GitStopped
        if time.monotonic() > self._until:
            raise RepositoryFailed("repository_unreachable", f"{self.url}: it took longer than {self.seconds:g} s")
        self.watch()

    def pause(self) -> None:
        """Waits a moment. Raises as ``check``."""
        self.stop.wait(_LOOK_SECONDS)
        self.check()

    def wait(self, seconds: float, why: str) -> None:
        """Waits as long. Raises as ``check``, and RepositoryFailed with the reason where the time is not left."""
        if time.monotonic() + seconds > self._until:
            raise RepositoryFailed("repository_unreachable", why)
        self.stop.wait(seconds)
        self.check()


@dataclass(frozen=True, slots=True)
class OwnRepository:
    """A repository without any configuration but ours; ``variables`` are further ones of git's environment."""

    directory: Path
    patience: Patience
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    def make(self, *, bare: bool = True) -> None:
        """Makes an empty repository, which has no hooks."""
        for name in ("objects", "refs", "info"):
            (self.directory / name).mkdir(parents=True)
        (self.directory / "HEAD").write_text("ref: refs/heads/none\n")
        (self.directory / "config").write_text(f"[core]\n\trepositoryFormatVersion = 0\n\tbare = {str(bare).lower()}\n")

    def run(self, command: OwnCommand, *arguments: str | Path, input: bytes = b"", held: int | None = None) -> bytes:
        """Runs a command and returns what it wrote. ``held`` is a lock that lasts as long as the command's processes.

        For commands whose answer is as large as what they are given; ``records`` is for those of untrusted data.

        Raises RepositoryFailed with its kind, GitStopped, or what else ends the ``patience``.
        """
        return b"".join(self._answer(command, arguments, input, held))

    def records(
        self, command: OwnCommand, *arguments: str | Path, end: bytes, held: int | None = None
    ) -> Generator[bytes]:
        """Yields what a command writes, record by record, as it comes. The command is killed when it is closed.

        Raises as ``run``.
        """
        rest = b""
        with closing(self._answer(command, arguments, b"", held)) as answer:
            for part in answer:
                *whole, rest = (rest + part).split(end)
                if len(rest) > _LONGEST_RECORD:
                    why = f"the answer to {command} has an entry of more than {_LONGEST_RECORD:,} bytes"
                    raise RepositoryFailed("repository_unreachable", f"{self.patience.url}: {why}")
                yield from whole

    def _answer(
        self, command: OwnCommand, arguments: tuple[str | Path, ...], input: bytes, held: int | None
    ) -> Generator[bytes]:
        """Yields what a command writes, in parts. Raises as ``run``."""
        own = str(self.directory)  # also as the home: libcurl would look for credentials in the user's .netrc
        env = own_environment() | {"GIT_DIR": own, "HOME": own, **self.variables}
        env |= {known: environment()[name] for name, known in _OF_MACHINE.items() if name in environment()}
        try:
            argv = [*command_line(env["PATH"], _OF_NETWORK), command, *map(str, arguments)]
        except FileNotFoundError as error:
            raise RepositoryFailed("repository_unreachable", f"{self.patience.url}: {error.strerror} here") from None
        error, written = bytearray(), b""
        with TemporaryFile() as given:
            given.write(input)
            given.seek(0)
            with subprocess.Popen(
                argv,
                bufsize=0,
                cwd=self.directory,
                env=env,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # with the programs that it starts for the network
                pass_fds=() if held is None else (held,),
            ) as process:
                try:
                    for part in self._read(process, error):
                        written = part if command == "push" else b""  # a refusal stands in its last lines
                        yield part
                except BaseException:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    raise
        self.patience.watch()  # a short command ends before anything looked
        if process.returncode:
            raise failure_of(command, self.patience.url, os.fsdecode(bytes(error) + b"\n" + written))

    def _read(self, process: subprocess.Popen[bytes], error: bytearray) -> Generator[bytes]:
        """Yields what the process writes until it has ended; ``error`` gets the end of its errors."""
        with suppress(ProcessLookupError):
            _, hard = resource.prlimit(process.pid, resource.RLIMIT_DATA)
            most = _MEMORY if hard == resource.RLIM_INFINITY else min(_MEMORY, hard)
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (most, most))
        assert process.stdout
        assert process.stderr
        with selectors.DefaultSelector() as open_pipes:
            for pipe in (process.stdout, process.stderr):
                open_pipes.register(pipe, selectors.EVENT_READ)
            look_at = time.monotonic() + _LOOK_SECONDS
            while open_pipes.get_map():
                for ready, _ in open_pipes.select(_LOOK_SECONDS):
                    part = os.read(ready.fd, _PART)
                    if not part:
                        open_pipes.unregister(ready.fileobj)
                    elif ready.fileobj is process.stdout:
                        yield part
                    else:
                        error[:] = (error + part)[-_PART:]
                if time.monotonic() >= look_at:
                    self.patience.check()
                    look_at = time.monotonic() + _LOOK_SECONDS
        while process.poll() is None:
            self.patience.pause()


_MAX_SHOWN = 300
_SIGNS: tuple[tuple[RepositoryKind, str, str], ...] = (
    (
        "repository_not_found",
        r"repository '.*' not found|does not appear to be a git repository|error: (404|410)$",
        "no repository is there, or its host does not show it to these credentials",
    ),
    (
        "repository_authentication",
        r"Authentication failed|could not read (Username|Password)|error: 401$",
        "the host asks for other credentials; DEPUTIZE_GIT_CREDENTIALS_FILE holds a user and token per host",
    ),
    (
        "repository_forbidden",
        r"error: 403$|insufficient permission",
        "the host refuses it to these credentials",
    ),
    (
        "repository_rejected",
        r"\[(remote )?rejected\]|protected branch|hook declined|error: 413$",
        "the server refuses it by a rule of its own",
    ),
    (
        "repository_forbidden",
        r"dubious ownership",
        "the folder belongs to another user than the worker's, and is not trusted; chown it, or serve it over https",
    ),
    (
        "repository_ref",
        r"couldn't find remote ref|not our ref|unadvertised object|upload-pack: not our|Needed a single revision",
        "it has no such branch, tag or commit; give one that `git ls-remote` lists, or a whole commit id",
    ),
    ("repository_never", r"error: 30\d$", "it redirects, which is not followed; give its final address"),
    (
        "repository_never",
        r"mismatched algorithms",
        "its objects have names of SHA-256, which is not supported; serve it as one of SHA-1",
    ),
    (
        "repository_never",
        r"SSL certificate problem|certificate verif|self.signed certificate|alternative certificate subject name",
        "no authority that this machine trusts vouches for its certificate; SSL_CERT_FILE names further ones",
    ),
    ("repository_never", r"dumb http|protocol .* (not supported|disabled)", "it does not have git's smart protocol"),
)
_MAY_PASS = re.compile(
    r"error: (?:408|425|429|5\d\d)$|resolve host|connect|timed? ?out|timeout|too slow|early EOF|hung up|RPC failed"
    r"|empty reply|transfer closed|(?:recv|send) (?:failure|error)|HTTP/[23] |temporar|unavailable|index-pack"
    r"|unpack-objects|\block|no space|out of memory|cannot allocate|bad pack|protocol error|expected|SSL_ERROR_SYSCALL",
    re.IGNORECASE,
)
"""What git writes where a connection, a server or this machine fails: not of the repository itself."""


def failure_of(command: str, url: str, error: str) -> RepositoryFailed:
    """Returns what git's own words mean. What a server sent, ``remote: …``, decides nothing and is repeated."""
    sent = [line.removeprefix("remote:").strip() for line in error.splitlines() if line.startswith("remote:")]
    server = f"; the server wrote: {clip(visible(' '.join(filter(None, sent))), _MAX_SHOWN)}" if any(sent) else ""
    lines = [line for line in error.splitlines() if line.strip() and not line.startswith(("remote:", "hint:"))]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:", " !", "!\t"))] or lines[-1:]
    words = clip(visible(" ".join(fatal).strip()), _MAX_SHOWN)
    for kind, sign, meaning in _SIGNS:
        if any(re.search(sign, line) for line in fatal):
            return RepositoryFailed(kind, f"{url}: {meaning} ({words}){server}")
    may_pass = not fatal or any(map(_MAY_PASS.search, fatal))
    unknown: RepositoryKind = "repository_unreachable" if may_pass else "repository_never"
    other: RepositoryKind = "delivery_patch" if command == "apply" else unknown
    return RepositoryFailed(other, f"{url}: git {command} failed: {words or 'it wrote no reason'}{server}")


def written_by(author: str, moment: int) -> dict[str, str]:
    """Returns the variables of git for commits of an author (`NAME <ADDRESS>`) at that second."""
    name, _, address = author.rstrip(">").rpartition(" <")
    who = {"NAME": name, "EMAIL": address, "DATE": f"@{moment} +0000"}
    return {f"GIT_{role}_{field}": text for role in ("AUTHOR", "COMMITTER") for field, text in who.items()}
