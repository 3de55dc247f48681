"""What a background shell has printed and nobody has read yet."""

from __future__ import annotations

import asyncio
import codecs

from worker.sandbox.kept import Kept

MAX_UNREAD = 1024 * 1024
"""Bytes kept; of more, the start and the end."""


class Unread:
    """Bytes between two looks. ``news`` is set when something came since the last ``take``."""

    def __init__(self) -> None:
        self._kept = Kept(MAX_UNREAD)
        self.empty = True
        self.lost = 0
        """Bytes that were too much, over all that was taken; who reports them sets it back."""
        self.news = asyncio.Event()

    def add(self, data: bytes) -> None:
        self._kept.add(data)
        self.empty = False
        self.news.set()

    @property
    def full(self) -> bool:
        """Whether bytes are being dropped."""
        return self._kept.dropped > 0

    def take(self) -> bytes:
        kept, self._kept = self._kept, Kept(MAX_UNREAD)
        self.lost += kept.dropped
        self.empty = True
        self.news.clear()
        return kept.data

    def put_back(self, data: bytes) -> None:
        """For what was taken and not read after all: it stands before what has come since, and is no news."""
        newer = self.take()
        if data:
            self._kept.add(data)
            self.empty = False
        if newer:
            self.add(newer)


def half_character(data: bytes) -> int:
    """How many bytes at the end are the start of a character (UTF-8) whose rest is still to come."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-4:])
    return len(decoder.getstate()[0])
