"""Lines at the bottom of a terminal that are redrawn in place; printed lines scroll above them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TextIO

UP = "\x1b[{}A"
CLEAR_BELOW = "\x1b[J"
NO_WRAP, WRAP = "\x1b[?7l", "\x1b[?7h"


class Region:
    """A redrawn region. The cursor stays on an empty line below it, so that key echoes vanish on the next redraw.

    The cursor is never hidden, so that a stopped or killed command has nothing to restore.
    """

    def __init__(self, stream: TextIO, lines: Callable[[], Sequence[str]]) -> None:
        self._stream = stream
        self._lines = lines
        self._drawn: list[str] = []

    def draw(self) -> None:
        lines = [*self._lines()]
        if lines != self._drawn:
            # The terminal may compute another character width; a wrapped line would break the line count.
            self._write(self._erasing() + NO_WRAP + "".join(f"{line}\n" for line in lines) + WRAP)
            self._drawn = lines

    def redraw(self) -> None:
        """Draws at the cursor without erasing: the old lines are not above it any more, as after Ctrl-Z and `fg`."""
        self._drawn = []
        self.draw()

    @contextmanager
    def aside(self) -> Generator[None]:
        """Erases the lines for the block, in which others may print to this terminal."""
        self.erase()
        try:
            yield
        finally:
            self.draw()

    def erase(self) -> None:
        self._write(self._erasing())
        self._drawn = []

    def _erasing(self) -> str:
        return f"\r{UP.format(len(self._drawn)) if self._drawn else ''}{CLEAR_BELOW}"

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            pass  # the terminal is gone; the work continues
