"""Command lines parsed by ``shfmt``, whose syntax trees are those of bash."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from deputize.worker.policy.shell.started import AHEAD
from deputize.worker.sandbox.environment import SYSTEM_PATH, packaged_program

Node = Mapping[str, Any]
"""A node of the tree as ``shfmt --to-json`` writes it, without positions."""

SECONDS = 5.0
MAX_TREE = 32 * 1024 * 1024
"""Bytes of JSON. Indentation makes it grow with the square of the depth."""
_TOO_LARGE = "it is too large or too deeply nested to be judged"


class ParseFailure(Exception):
    """The line could not be parsed. ``line`` is where the mistake stands in it, or 0."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True, slots=True)
class Parser:
    """Has one ``shfmt`` process for each line."""

    program: str | None
    seconds: float = SECONDS

    def parse(self, line: str) -> Sequence[Node]:
        """Returns the statements of a line. Raises ParseFailure."""
        if self.program is None:
            raise ParseFailure("shfmt is missing; install the extra deputize[sandbox]")
        written = self._run(self.program, line.encode("utf-8", "replace"))
        try:
            return json.loads(written, object_pairs_hook=_without_positions).get("Stmts", [])
        except RecursionError:
            raise ParseFailure(_TOO_LARGE) from None
        except (ValueError, AttributeError):
            raise ParseFailure("shfmt failed") from None

    def _run(self, program: str, text: bytes) -> bytes:
        """Returns what the parser writes about a text. Raises ParseFailure."""
        try:
            started = AHEAD.start(program, text)
        except OSError as error:
            raise ParseFailure(f"shfmt does not start: {error.strerror}") from None
        with started:
            if written := self._output(started.process.stdout):
                return written
            started.mistakes.seek(0)
            raise _syntax_error(started.mistakes.read(1000).decode("utf-8", "replace"))

    def _output(self, pipe: Any) -> bytes:
        deadline = time.monotonic() + self.seconds
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        written = bytearray()
        while poll.poll(max(0, deadline - time.monotonic()) * 1000):
            part = os.read(pipe.fileno(), 1 << 20)
            if not part:
                return bytes(written)
            written += part
            if len(written) > MAX_TREE:
                raise ParseFailure(_TOO_LARGE)
        raise ParseFailure(f"parsing takes longer than {self.seconds:g} s")


@cache
def installed_parser() -> Parser:
    """Returns the parser of this machine."""
    # The wheel's first: its version is the one that this walk of the tree is tested with.
    path = packaged_program("shfmt", "shfmt-py") or shutil.which("shfmt", path=SYSTEM_PATH)
    return Parser(str(path) if path else None)


def nodes_of(tree: Any) -> Iterator[Node]:
    """Yields every object of a tree, however deep, in the order of the line."""
    stack = [tree]
    while stack:
        found = stack.pop()
        if isinstance(found, dict):
            yield found
            stack.extend(reversed(found.values()))
        elif isinstance(found, list):
            stack.extend(reversed(found))


def _syntax_error(mistake: str) -> ParseFailure:
    found = re.match(r"(?:<standard input>:)?(\d+):\d+: (.*)", mistake)
    if found is None:
        return ParseFailure("shfmt failed")
    return ParseFailure(f"it is not valid bash: {found[2]}", int(found[1]))


def _without_positions(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any] | None:
    """Returns an object of the JSON without its positions, which are most of it; None for a position."""
    if pairs and pairs[0][0] == "Offset" and isinstance(pairs[0][1], int):
        return None
    return {key: value for key, value in pairs if value is not None}
