"""Everything the command line says goes out here, so that nothing from outside reaches a terminal as it is."""

from __future__ import annotations

import sys

import click

from shared.errors import Misconfigured
from shared.text import visible, visible_block, visible_json


def line(text: str, *, err: bool = False) -> None:
    """One line; line ends inside it are shown, not printed."""
    _write(visible(text) + "\n", err)


def block(text: str, *, err: bool = False) -> None:
    """Text of several lines, such as a summary."""
    _write(visible_block(text) + "\n", err)


def json_line(text: str) -> None:
    """One JSON value on a line of its own, for programs that may be terminals after all."""
    _write(visible_json(text) + "\n", err=False)


def content(text: str) -> None:
    """A patch or an artifact: byte for byte where a file or program takes it, made visible on a terminal."""
    _write(visible_block(text) if sys.stdout.isatty() else text.encode(), err=False)


def confirmed(question: str) -> bool:
    """Asks on the terminal; no is the default."""
    return click.confirm(visible(question), err=True)


def _write(text: str | bytes, err: bool) -> None:
    # Not by click.echo, which takes out what it holds for colours: a patch that has some must arrive whole.
    stream = sys.stderr if err else sys.stdout
    try:
        if isinstance(text, bytes):
            stream.flush()
            stream.buffer.write(text)
        else:
            stream.write(text)
        stream.flush()
    except OSError as error:
        # Progress that nobody can read is no reason to lose the result; a result that nobody can read is.
        if not err:
            raise Misconfigured(f"the output cannot be written: {error.strerror}") from None
