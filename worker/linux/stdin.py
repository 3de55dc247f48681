"""A program's standard input, fed from the event loop as fast as the program takes it."""

from __future__ import annotations

import asyncio
import os


class Stdin:
    """Owns the descriptor, which must not block. With ``held`` nothing is written before ``begin``."""

    def __init__(self, fd: int, queued: bytes = b"", *, open_end: bool, held: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._outgoing = bytearray(queued)
        self._open_end = open_end
        self._held = held

    @property
    def fd(self) -> int:
        return self._fd

    @property
    def queued(self) -> int:
        """Bytes that the program has not taken yet."""
        return len(self._outgoing)

    def begin(self) -> None:
        """What was held back is written from now on."""
        self._held = False
        self._feed()

    def write(self, data: bytes) -> None:
        """Queues bytes."""
        self._outgoing += data
        self._feed()

    def end(self) -> None:
        """The program reads the end of its input after what is queued."""
        self._open_end = False
        self._feed()

    def drop(self) -> None:
        """Closes it at once, whatever is queued."""
        if self._fd >= 0:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _feed(self) -> None:
        if self._fd < 0 or self._held:
            return
        self._loop.remove_writer(self._fd)
        try:
            while self._outgoing:
                del self._outgoing[: os.write(self._fd, self._outgoing)]
        except BlockingIOError:
            self._loop.add_writer(self._fd, self._feed)
            return
        except BrokenPipeError:  # the program does not want more
            self._outgoing.clear()
        if not self._open_end:
            self.drop()
