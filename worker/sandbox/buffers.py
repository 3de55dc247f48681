"""Bounded buffers of output: the start or both ends of a stream, unread output, and filtered lines."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Callable, Sequence

import regex

from ...shared.errors import ErrorType, ToolError
from ..text.compute_limit import ComputeLimit

MAX_UNREAD = 1024 * 1024
"""Bytes kept: the start and the end of longer output."""
MAX_CHARS = 1024 * 1024
"""Characters kept per shell: the last ones."""
MAX_FILTER = 2000
"""Characters of a filter: while a long one is compiled, no other run of the process goes on."""
FILTER_SECONDS = 1.0
"""Computing time for all lines of one read. Some patterns backtrack exponentially."""


class BoundedBuffer:
    """Keeps at most ``max_bytes`` of what is added and counts what it drops.

    ``keep`` is ``head`` or ``head_tail`` (half from each end, with a line between them that states what is missing).
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
        if len(self._tail) > 2 * self._tail_size + 65536:  # trimmed occasionally: moving bytes for each chunk is slow
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


def tee(buffer: Callable[[bytes], None], on_output: Callable[[bytes], None] | None) -> Callable[[bytes], None]:
    """Returns what adds to the buffer, and hands on later, by the event loop, which reports exceptions of it."""
    loop = asyncio.get_running_loop()

    def sink(data: bytes) -> None:
        buffer(data)
        if on_output:
            loop.call_soon(on_output, data)

    return sink


class OutputBuffer:
    """Bytes between two reads. ``arrived`` is set when bytes have arrived since the last ``take``."""

    def __init__(self) -> None:
        self._kept = BoundedBuffer(MAX_UNREAD)
        self.empty = True
        self.lost = 0
        """Bytes dropped since the last report; the reporter resets it."""
        self.arrived = asyncio.Event()

    def add(self, data: bytes) -> None:
        self._kept.add(data)
        self.empty = False
        self.arrived.set()

    @property
    def full(self) -> bool:
        """Whether bytes are being dropped."""
        return self._kept.dropped > 0

    def take(self) -> bytes:
        kept, self._kept = self._kept, BoundedBuffer(MAX_UNREAD)
        self.lost += kept.dropped
        self.empty = True
        self.arrived.clear()
        return kept.data

    def put_back(self, data: bytes) -> None:
        """Returns taken but unread bytes to the front of the buffer, without setting ``arrived``."""
        newer = self.take()
        if data:
            self._kept.add(data)
            self.empty = False
        if newer:
            self.add(newer)


def incomplete_utf8_length(data: bytes) -> int:
    """Returns the number of bytes at the end that are an incomplete UTF-8 character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-4:])
    return len(decoder.getstate()[0])


class HiddenLines:
    """The lines hidden by a filter, in order, and its pattern."""

    def __init__(self) -> None:
        self.pattern: str | None = None
        self.lines: list[str] = []
        self.lost = 0
        """Lines dropped since the last report; the reporter resets it."""

    def replace(self, lines: list[str], pattern: str | None) -> None:
        """Replaces the lines and the pattern that hides them."""
        too_many, dropped = sum(map(len, lines)) + len(lines) - MAX_CHARS, 0
        while too_many > 0:
            too_many -= len(lines[dropped]) + 1
            dropped += 1
        self.lines, self.pattern = lines[dropped:], pattern
        self.lost += dropped


class LineFilter:
    """A compiled pattern. Raises ToolError(INVALID_TOOL_PARAMS) if it is not a valid regular expression.

    Compiling and matching may be slow: create and use it in a thread.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_FILTER:
            why = f"filter has {len(pattern):,} characters, and may have {MAX_FILTER:,}. Name less."
            raise ToolError(ErrorType.INVALID_TOOL_PARAMS, why)
        try:
            self._pattern = regex.compile(pattern)
        except (regex.error, RecursionError, OverflowError) as error:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS,
                f"filter is not a valid regular expression: {error}. Escape literal characters, as in `foo\\(`.",
            ) from None

    def matches(self, lines: Sequence[str], seconds: float = FILTER_SECONDS) -> list[bool]:
        """Returns for each line whether it matches. Raises ToolError(TIMEOUT) after ``seconds`` of computing time."""
        limit = ComputeLimit(seconds)
        try:
            return [limit.search(self._pattern, line.removesuffix("\r")) is not None for line in lines]
        except TimeoutError:
            raise ToolError(
                ErrorType.TIMEOUT,
                f"the filter took longer than {seconds:g} s; use a simpler one, or none. The output is kept.",
            ) from None
