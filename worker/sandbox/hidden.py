"""The lines of a background shell that a filter kept from being shown: they stay readable."""

from __future__ import annotations

from collections import deque

MAX_CHARS = 1024 * 1024
"""Kept of one shell; of more, the last ones."""


class Hidden:
    """Lines in order, and the pattern that none of them matches."""

    def __init__(self) -> None:
        self.pattern: str | None = None
        self.lost = 0
        """Lines that were too many; who reports them sets it back."""
        self._lines: deque[str] = deque()
        self._chars = 0

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def lines(self) -> list[str]:
        return [*self._lines]

    def replace(self, lines: list[str], pattern: str | None) -> None:
        """From now on these are the lines, and ``pattern`` is what hides them."""
        self.pattern = pattern
        self._lines = deque(lines)
        self._chars = sum(map(len, lines)) + len(lines)
        while self._chars > MAX_CHARS:
            self._chars -= len(self._lines.popleft()) + 1
            self.lost += 1
