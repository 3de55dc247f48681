"""The parser's next process, started before there is a line for it: to start takes longer than to parse."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import IO

MAX_TEXT = 32 * 1024
"""Bytes that a pipe takes at once, so that writing waits for nothing."""
_OPTIONS = ("--to-json", "--language-dialect", "bash")
_ENVIRONMENT = {"GOMAXPROCS": "1"}


@dataclass(frozen=True, slots=True)
class Started:
    """A process of the parser, and what it writes about mistakes."""

    process: subprocess.Popen[bytes]
    mistakes: IO[bytes]

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Ends the process."""
        with self.process, self.mistakes:
            self.process.kill()


class ProcessAhead:
    """A process that waits for its text. There is one only while a worker wants it; it ends with this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._starting = False
        self._waiting: dict[str, Started] = {}

    @contextmanager
    def wanted(self) -> Generator[None]:
        """Starts processes ahead from the first line on, until the block ends."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
            self._end_unwanted()

    def start(self, program: str, text: bytes) -> Started:
        """Returns a process that has the text, and starts the next one meanwhile. Raises OSError."""
        with self._lock:
            found = self._waiting.pop(program, None) if len(text) <= MAX_TEXT else None
        if found is None or not _has_taken(found, text):
            if found:
                found.end()
            with file_of(text) as source:
                found = _start(program, source)
        self._refill(program)
        return found

    def _refill(self, program: str) -> None:
        with self._lock:
            if self._starting or program in self._waiting or not self._users:
                return
            self._starting = True
        started = None
        with suppress(OSError):
            started = _start(program, subprocess.PIPE)
        with self._lock:
            self._starting = False
            self._waiting |= {program: started} if started else {}
        self._end_unwanted()

    def _end_unwanted(self) -> None:
        with self._lock:
            ended = [] if self._users else [self._waiting.popitem()[1] for _ in [*self._waiting]]
        for each in ended:
            each.end()


AHEAD = ProcessAhead()


def file_of(data: bytes) -> IO[bytes]:
    """Returns a file in memory."""
    file = os.fdopen(os.memfd_create("shfmt"), "w+b", buffering=0)
    file.write(data)
    file.seek(0)
    return file


def _start(program: str, source: IO[bytes] | int) -> Started:
    mistakes = file_of(b"")
    try:
        process = subprocess.Popen(
            [program, *_OPTIONS], stdin=source, stdout=subprocess.PIPE, stderr=mistakes, env=_ENVIRONMENT
        )
    except OSError:
        mistakes.close()
        raise
    return Started(process, mistakes)


def _has_taken(found: Started, text: bytes) -> bool:
    """Writes the text to a process that waits for it; returns whether it was alive."""
    pipe = found.process.stdin
    with suppress(OSError):
        if pipe is not None and found.process.poll() is None:
            os.write(pipe.fileno(), text)
            pipe.close()
            return True
    return False
