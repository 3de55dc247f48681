"""All output of the command line, so that text from outside is always escaped on a terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

import click

from ...shared.errors import Misconfigured
from ...shared.text import visible, visible_block, visible_json
from . import formatting

if TYPE_CHECKING:
    from ...shared.wire import Wire

READER_GONE = 141
"""The exit code where the reader of the output has left, as of a program that SIGPIPE ended."""

SIGN = re.compile(r"(?<!\S)[✓✗](?!\S)")
COMMAND = re.compile(r"(?<!\S)\$ .+?(?=  |$)")
DIFF = re.compile(r"( {2}\| | {4})(?=[-+]|@@ )")
"""Before a line of a diff."""


def line(text: str, *, err: bool = False) -> None:
    """Writes one line; line ends inside it are escaped. On a terminal it is coloured, and broken at blanks."""
    shown = visible(text)
    if (stream := sys.stderr if err else sys.stdout).isatty():
        columns = os.get_terminal_size(stream.fileno()).columns or len(shown)
        parts = formatting.wrapped(shown, columns, hang=min(4, columns // 2))
        shown = "\n".join(painted(part, stream) for part in parts)
    _write(shown + "\n", err)


def lines(texts: Iterable[str], *, err: bool = False) -> None:
    for text in texts:
        line(text, err=err)


def note(text: str) -> None:
    """Writes one line to stderr, which is for everything but the result."""
    line(text, err=True)


def painted(text: str, stream: TextIO) -> str:
    """Returns a line with the colours of its signs, commands and diffs, where this terminal has colours."""
    diff, sign = DIFF.match(text), SIGN.search(text)
    if not (diff or sign or COMMAND.search(text)) or not _has_colours(stream):
        return text
    if diff:
        return diff[0] + _coloured(text[diff.end() :])
    text = COMMAND.sub(lambda found: click.style(found[0], fg="cyan"), text)
    return SIGN.sub(lambda found: click.style(found[0], fg="green" if found[0] == "✓" else "red"), text, count=1)


def _has_colours(stream: TextIO) -> bool:
    from rich.console import Console

    console = Console(file=stream)
    return console.color_system is not None and not console.no_color


def block(text: str, *, err: bool = False) -> None:
    """Writes text of several lines, such as a summary."""
    _write(visible_block(text) + "\n", err)


def json_line(text: str) -> None:
    """Writes one JSON value per line, escaped in case the output is a terminal."""
    _write(visible_json(text) + "\n", err=False)


def json_lines(values: Iterable[Wire]) -> None:
    for value in values:
        json_line(value.to_json())


def content(text: str) -> None:
    """Writes a patch or an artifact: byte for byte to a file or pipe, escaped on a terminal."""
    _write(visible_block(text) if sys.stdout.isatty() else text.encode(), err=False)


def patch(text: str) -> None:
    """Writes a patch like other content, on a terminal with git's colours."""
    if not sys.stdout.isatty():
        content(text)
        return
    coloured = _has_colours(sys.stdout)
    for each in visible_block(text).splitlines():
        _write(_coloured(each) + "\n" if coloured else each + "\n", err=False)


def _coloured(line: str) -> str:
    if line.startswith(("diff --git ", "index ", "--- ", "+++ ", "new file", "deleted file", "old mode", "new mode")):
        return click.style(line, bold=True)
    colours = {"@@": "cyan", "+": "green", "-": "red", "#": "yellow"}
    colour = next((colour for start, colour in colours.items() if line.startswith(start)), None)
    return click.style(line, fg=colour) if colour else line


def confirm(question: str) -> bool:
    """Asks on the terminal; no is the default."""
    return click.confirm(visible(question), err=True)


def _write(text: str | bytes, err: bool) -> None:
    # Not by click.echo, which strips colour codes: a patch that contains some must be written as it is.
    stream = sys.stderr if err else sys.stdout
    try:
        if isinstance(text, bytes):
            stream.flush()
            stream.buffer.write(text)
        else:
            stream.write(text)
        stream.flush()
    except OSError as error:
        # A failed write of progress must not lose the result; a failed write of the result is an error.
        _discard_rest(stream)
        if not err and isinstance(error, BrokenPipeError):
            raise click.exceptions.Exit(READER_GONE) from None
        if not err:
            raise Misconfigured(f"the output cannot be written: {error.strerror}") from None


def _discard_rest(stream: TextIO) -> None:
    """Lets the interpreter's own flush at exit succeed: a failure there would replace the exit code by 120."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
