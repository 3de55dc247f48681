"""Process trees from /proc. A process that ends meanwhile is not an error."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

MAX_LINE = 120
"""Characters of a command line."""


def children(pid: int) -> list[int]:
    """Returns the children of all threads of a process."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - paths would take half of the time
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:  # noqa: PTH123
            found += map(int, file.read().split())
    return found


def descendants(pid: int) -> Iterator[int]:
    """Yields the pids of all processes below this one, parents before children.

    Takes some 20 µs per process, or thread of one: in a thread where there may be hundreds.
    """
    waiting = children(pid)
    while waiting:
        yield (found := waiting.pop(0))
        waiting += children(found)


def open_descendants(pid: int, fds: dict[int, int]) -> None:
    """Adds a pidfd per process to ``fds``, by pid. A pid that another process has by now is left out."""
    for found in descendants(pid):
        with suppress(OSError):
            fds[found] = os.pidfd_open(found)
    close_all({gone: fds.pop(gone) for gone in fds.keys() - set(descendants(pid))})


def close_all(fds: Mapping[int, int]) -> None:
    for fd in fds.values():
        os.close(fd)


def send_signal(fd: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(fd, what)


async def asked_to_end(fds: Iterable[int], seconds: float) -> bool:
    """Sends SIGTERM to these processes. Returns whether all have ended within ``seconds``."""
    loop = asyncio.get_running_loop()
    living = set(fds)
    all_gone = loop.create_future()

    def gone(fd: int) -> None:
        loop.remove_reader(fd)
        living.discard(fd)
        if not living and not all_gone.done():
            all_gone.set_result(None)

    for fd in [*living]:
        loop.add_reader(fd, gone, fd)
        send_signal(fd, signal.SIGTERM)
    try:
        await asyncio.wait([all_gone], timeout=seconds)
        return not living
    finally:
        for fd in living:
            loop.remove_reader(fd)


def command_line(pid: int) -> str | None:
    """Returns the beginning of a command line: "" in the middle of an exec, None for a process that has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        if not any(words):
            Path(f"/proc/{pid}/exe").readlink()  # a zombie has no program
    except OSError:
        return None
    return " ".join(words).strip()[:MAX_LINE]
