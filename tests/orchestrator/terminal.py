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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.orchestrator.command_line import PROGRAM, environment
from tests.processes.preloaded import Forked

SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Terminal:
    """The command's terminal: all that was drawn, and the screen that it makes."""

    def __init__(self, process: Forked, ours: int, lines: int, columns: int) -> None:
        """``ours`` is the terminal's other end; reading from it does not block."""
        self.process = process
        self._ours = ours
        self._lines, self._columns = lines, columns
        self._bytes = bytearray()

    def take(self, chunk: bytes) -> None:
        self._bytes += chunk

    def read(self) -> None:
        """Takes all that was written so far."""
        with suppress(OSError):  # there is no more
            while chunk := os.read(self._ours, 65536):
                self.take(chunk)

    @property
    def drawn(self) -> str:
        return self._bytes.decode("utf-8", "replace")

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

    def screen(self) -> list[str]:
        """The lines that are visible now, without the empty ones at the end."""
        return self.history()[-self._lines :]

    def last_line(self) -> str:
        """The last visible line; empty while there is none."""
        return next(iter(self.screen()[-1:]), "")

    def history(self) -> list[str]:
        """Every line, also those that scrolled away."""
        rows, row, column = [""], 0, 0
        at = 0
        drawn = self.drawn
        while at < len(drawn):
            if found := SEQUENCE.match(drawn, at):
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
                self._put(rows, row, column, char)
                column += 1
            while row >= len(rows):
                rows.append("")
        while rows and not rows[-1].strip():
            rows.pop()
        return [each.rstrip() for each in rows]

    def _put(self, rows: list[str], row: int, column: int, char: str) -> None:
        while row >= len(rows):
            rows.append("")
        line = rows[row].ljust(column)
        rows[row] = line[:column] + char + line[column + 1 :]

    def _move(self, rows: list[str], row: int, column: int, given: str, kind: str) -> tuple[int, int]:
        number = int(given) if given.isdigit() else 1
        if kind == "A":
            top = max(0, len(rows) - self._lines)  # what scrolled away cannot be reached again
            return max(top, row - number), column
        if kind == "J":
            rows[row] = rows[row][:column]
            del rows[row + 1 :]
        elif kind == "K":
            rows[row] = "" if number == 2 else rows[row][:column]
        return row, column


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
