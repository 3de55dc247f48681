"""The part of a stream that is kept: its start, or its start and its end."""

from __future__ import annotations


class Kept:
    """Keeps at most ``max_bytes`` of what is added and counts what it drops.

    ``keep`` is ``head`` or ``head_tail`` (half from each end, with a line between them that says what is missing).
    """

    def __init__(self, max_bytes: int, keep: str = "head_tail") -> None:
        self._tail_size = max_bytes // 2 if keep == "head_tail" else 0
        self._head_size = max_bytes - self._tail_size
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        self._total += len(data)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not self._tail_size or not data:
            return
        self._tail += data
        if len(self._tail) > 2 * self._tail_size + 65536:  # trimmed now and then: moving bytes for each piece is slow
            del self._tail[: -self._tail_size]

    @property
    def dropped(self) -> int:
        return max(0, self._total - self._head_size - self._tail_size)

    @property
    def data(self) -> bytes:
        if not self.dropped:
            return bytes(self._head + self._tail)
        if not self._tail_size:
            return bytes(self._head)
        gap = b"\n[... %d bytes dropped ...]\n" % self.dropped
        return bytes(self._head + gap + self._tail[-self._tail_size :])
