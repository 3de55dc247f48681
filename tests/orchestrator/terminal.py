"""Running `deputize` on a terminal, and what a person would see on it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import termios
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.orchestrator.command_line import PROGRAM, environment
from tests.processes.preloaded import Forked

SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")
Cell = tuple[str, str]
"""A character and how it is drawn: the parameters of the colour sequences in force, as ``1;32``."""
BLANK: Cell = (" ", "")


class Screen:
    """All that was drawn on a terminal, and the screen that it makes."""

    def __init__(self, lines: int, columns: int) -> None:
        self._lines, self._columns = lines, columns
        self._bytes = bytearray()
        self.taken: list[tuple[float, bytes]] = []
        """What was drawn, and when, in seconds of a clock of its own."""

    def take(self, chunk: bytes) -> None:
        self._bytes += chunk
        self.taken.append((time.monotonic(), chunk))

    @property
    def drawn(self) -> str:
        return self._bytes.decode("utf-8", "replace")

    def screen(self) -> list[str]:
        """The lines that are visible now, without the empty ones at the end."""
        return self.history()[-self._lines :]

    def last_line(self) -> str:
        """The last visible line; empty while there is none."""
        return next(iter(self.screen()[-1:]), "")

    def history(self) -> list[str]:
        """Every line, also those that scrolled away."""
        return ["".join(char for char, _ in row).rstrip() for row in self.cells()]

    def cells(self) -> list[list[Cell]]:
        """The same with how each character is drawn."""
        rows: list[list[Cell]] = [[]]
        row = column = at = 0
        drawn, style = self.drawn, ""
        while at < len(drawn):
            if found := SEQUENCE.match(drawn, at):
                if found[2] == "m":
                    style = "" if found[1] in ("", "0") else f"{style};{found[1]}".strip(";")
                row, column = self._move(rows, row, column, found[1], found[2])
                at = found.end()
                continue
            char, at = drawn[at], at + 1
            if char == "\n":
                row += 1
            elif char == "\r":
                column = 0
            else:
                if column == self._columns:
                    row, column = row + 1, 0
                self._put(rows, row, column, (char, style))
                column += 1
            while row >= len(rows):
                rows.append([])
        while rows and not "".join(char for char, _ in rows[-1]).strip():
            rows.pop()
        return rows

    def _put(self, rows: list[list[Cell]], row: int, column: int, cell: Cell) -> None:
        while row >= len(rows):
            rows.append([])
        line = rows[row]
        line += [BLANK] * (column + 1 - len(line))
        line[column] = cell

    def _move(self, rows: list[list[Cell]], row: int, column: int, given: str, kind: str) -> tuple[int, int]:
        number = int(given) if given.isdigit() else 1
        if kind == "A":
            top = max(0, len(rows) - self._lines)  # what scrolled away cannot be reached again
            return max(top, row - number), column
        if kind == "J":
            del rows[row][column:], rows[row + 1 :]
        elif kind == "K":
            del rows[row][0 if number == 2 else column :]
        return row, column


class Terminal(Screen):
    """The terminal of a command."""

    def __init__(self, process: Forked, ours: int, lines: int, columns: int) -> None:
        """``ours`` is the terminal's other end; reading from it does not block."""
        super().__init__(lines, columns)
        self.process = process
        self._ours = ours

    def read(self) -> None:
        """Takes all that was written so far."""
        with suppress(OSError):  # there is no more
            while chunk := os.read(self._ours, 65536):
                self.take(chunk)

    async def ended(self) -> int:
        """Returns the exit code; all that the command has written was read."""
        async with asyncio.timeout(60):
            code = await self.process.ended()
        self.read()
        return code

    def type(self, text: str) -> None:
        """Presses these keys."""
        os.write(self._ours, text.encode())

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@asynccontextmanager
async def on_terminal(
    *arguments: str, lines: int = 24, columns: int = 100, **variables: str
) -> AsyncIterator[Terminal]:
    """The command with input and outputs on a terminal of that size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    loop = asyncio.get_running_loop()
    given = environment(**{"TERM": "xterm-256color"} | variables)
    process = Forked(PROGRAM, arguments, given, stdin=theirs, stdout=theirs, stderr=theirs)
    os.set_blocking(ours, False)
    terminal = Terminal(process, ours, lines, columns)
    loop.add_reader(ours, terminal.read)
    try:
        yield terminal
    finally:
        process.kill()
        await terminal.ended()
        loop.remove_reader(ours)
        os.close(ours)
        os.close(theirs)
