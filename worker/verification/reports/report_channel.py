"""The channel by which programs in a sandbox report tests: a socket that the worker reads while the command runs.

What was sent cannot be read, changed or taken back by anything in the sandbox: no file has it, and no path or
environment leads to it. A connection gets a key of its own, with which each of its lines begins. The programs connect
before they load the code under test. A process that connects a second time, more connections than runners make, and a
line without the key are of that code's making. A connection from below a process that reports its tests is one of the
code under test, and is closed.

Runners that write a file at their end are given a pipe in its place. Whatever is written into it stays: of what several
wrote, the worst counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import socket
import struct
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from ....shared.libc import closing_fd
from .report_files import merged, of_text
from .states import MAX_REPORT_BYTES, Report, of_lines

BENT = frozenset(("the report of the tests",))
OF_NODE = "_bent"
"""How the name of the pipe ends into which each process of Node writes what was replaced in it."""
_MAX_OF_NODE = 32 * 1024
"""What is kept of that pipe. It is less than a pipe holds: where a process finds it full, more came than is kept."""
_MAX_DOCUMENTS = 1000
"""The reports in one pipe: of runners, one for each time that they are started."""
_NOT_BLANK = re.compile(r"\S")
_CREDENTIALS = struct.Struct("3i")
_CHUNK = 64 * 1024
_MAX_ANCESTORS = 64
_MAX_OPEN, _MAX_SESSIONS = 100, 10_000
"""Connections at once, which are open files of the worker, and in all."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(slots=True)
class _Session:
    """One connection: who opened it, its key, and what it has sent."""

    peer: socket.socket
    pid: int
    key: bytes = field(default_factory=lambda: secrets.token_hex(16).encode())
    data: bytearray = field(default_factory=bytearray)
    is_open: bool = True

    @property
    def is_reporting(self) -> bool:
        """Whether it has begun to report tests, and has not reported their end."""
        last = bytes(self.data[-4096:]).rstrip(b"\n").rpartition(b"\n")[2]
        return self.is_open and bool(self.data) and not last.startswith(self.key + b'{"end"')

    def report(self) -> Report | None:
        """Returns what it reported; a line without the key makes the whole of it untrustworthy."""
        *lines, rest = bytes(self.data).split(b"\n")
        own = [line[len(self.key) :] for line in lines if line.startswith(self.key)]
        try:
            report = of_lines(line.decode("utf-8", "replace") for line in own)
        except KeyError:  # no program has sent that
            report, rest = None, rest or b"?"
        if rest or len(own) < len(lines):
            report = report or Report()
            report.bent = BENT
        return report


@dataclass(slots=True)
class _Pipe:
    """A pipe in the place of a file, and what was written into it."""

    fd: int
    is_of_node: bool
    data: bytearray = field(default_factory=bytearray)

    @property
    def is_full(self) -> bool:
        return len(self.data) > (_MAX_OF_NODE if self.is_of_node else MAX_REPORT_BYTES)

    def report(self) -> Report | None:
        """Returns what it reports; more than is kept makes the whole of what Node wrote untrustworthy."""
        if self.is_of_node and self.is_full:
            return Report(bent=BENT, of_runner=False)
        found = _written(self.data)
        if found and self.is_of_node:
            found.of_runner = False
        return found


class ReportChannel:
    """Listens below a folder while it is entered; ``report`` has what came. Belongs to the running event loop."""

    def __init__(self, folder: Path, name: str, pipes: Collection[str] = ()) -> None:
        self._sessions, self._bytes, self.bent = list[_Session](), 0, False
        self._pipes = [_Pipe(_opened(folder / name), name.endswith(OF_NODE)) for name in pipes]
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with closing_fd(os.open(folder, _FOLDER)) as fd:  # the whole path may be longer than an address
            self._listener.bind(f"/proc/self/fd/{fd}/{name}")
        (folder / name).chmod(0o666)
        self._listener.listen(128)

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._listener, self._accept)
        for pipe in self._pipes:
            self._loop.add_reader(pipe.fd, self._read_pipe, pipe)
        return self

    def __exit__(self, *_: object) -> None:
        """Reads what has been sent until now: no process is left that could send more."""
        self._loop.remove_reader(self._listener)
        self._accept()
        self._listener.close()
        for session in self._sessions:
            while session.is_open and self._read(session):
                pass
            self._close(session)
        for pipe in self._pipes:
            while self._read_pipe(pipe):
                pass
            self._loop.remove_reader(pipe.fd)
            os.close(pipe.fd)

    def report(self) -> Report | None:
        """Returns what all connections reported, None where none of them did."""
        sent = [session.report() for session in self._sessions] + [pipe.report() for pipe in self._pipes]
        found = merged([report for report in sent if report])
        if found and self.bent:
            found.bent = BENT
        return found

    def _accept(self) -> None:
        with suppress(BlockingIOError):
            while True:
                peer, _ = self._listener.accept()
                self._begin(peer)

    def _begin(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        if len(self._sessions) >= _MAX_SESSIONS or sum(each.is_open for each in self._sessions) >= _MAX_OPEN:
            self.bent = True
            peer.close()
            return
        pid = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
        above = _ancestors(pid)
        if any(session.is_reporting and session.pid in above for session in self._sessions):
            peer.close()
            return
        if any(session.is_open and session.pid == pid for session in self._sessions):
            self.bent = True
        session = _Session(peer, pid)
        self._sessions.append(session)
        with suppress(OSError):
            peer.send(session.key + b"\n")
        self._loop.add_reader(peer, self._read, session)

    def _read(self, session: _Session) -> bool:
        """Reads a part; returns whether there may be more at once."""
        try:
            data = session.peer.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._bytes += len(data)
        if not data or self._bytes > MAX_REPORT_BYTES:
            self._close(session)
            return False
        session.data += data
        return True

    def _read_pipe(self, pipe: _Pipe) -> bool:
        """Reads a part; returns whether there may be more at once. Nothing is read of a full one: it may never end."""
        try:
            pipe.data += os.read(pipe.fd, _CHUNK)
        except BlockingIOError:
            return False
        if pipe.is_full:
            self._loop.remove_reader(pipe.fd)
        return not pipe.is_full

    def _close(self, session: _Session) -> None:
        if session.is_open:
            self._loop.remove_reader(session.peer)
            session.peer.close()
            session.is_open = False


def _opened(path: Path) -> int:
    """Makes a pipe and opens it; it never ends, as the worker itself could write into it."""
    os.mkfifo(path)
    path.chmod(0o622)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _written(data: bytearray) -> Report | None:
    """Returns what was written into a pipe: by one runner, or by several one after the other."""
    text = data.decode("utf-8", "replace").strip()
    if not text:
        return None
    try:
        found = [of_text(part) for part in _documents(text)]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        found = [None]
    report = merged([each for each in found if each]) or Report()
    report.finished = None not in found
    return report


def _documents(text: str) -> list[str]:
    """Returns the documents of which a text is made; raises ``ValueError`` where they are too many."""
    if text.startswith("<"):
        parts = re.split(r"(?=<\?xml\b)", text, maxsplit=_MAX_DOCUMENTS + 1)
        found, at = [part for part in parts if part], len(text)
    else:
        found, at = list[str](), 0
    decoder = json.JSONDecoder()
    while at < len(text) and len(found) <= _MAX_DOCUMENTS:
        _, end = decoder.raw_decode(text, at)
        found.append(text[at:end])
        following = _NOT_BLANK.search(text, end)
        at = following.start() if following else len(text)
    if len(found) > _MAX_DOCUMENTS:
        raise ValueError("too many reports")
    return found


def _ancestors(pid: int) -> set[int]:
    """Returns the processes above one, as far as they are known."""
    found = set[int]()
    while pid > 1 and len(found) < _MAX_ANCESTORS:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            break
        pid = int(status.rpartition(")")[2].split()[1])
        found.add(pid)
    return found
