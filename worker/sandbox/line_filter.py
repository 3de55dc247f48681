"""Selects lines by a regular expression, with a time limit."""

from __future__ import annotations

from collections.abc import Sequence

import regex

from shared.errors import ErrorType, ToolError
from worker.text.patterns import ComputeLimit, search

SECONDS = 1.0
"""Computing time for all lines of one read. Some patterns backtrack exponentially."""


class LineFilter:
    """A compiled pattern. Raises ToolError(INVALID_TOOL_PARAMS) if it is not a valid regular expression.

    Compiling and matching may be slow: create and use it in a thread.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self._wanted = regex.compile(pattern)
        except (regex.error, RecursionError, OverflowError) as error:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS,
                f"filter is not a valid regular expression: {error}. Escape literal characters, as in `foo\\(`.",
            ) from None

    def matching(self, lines: Sequence[str], seconds: float = SECONDS) -> list[bool]:
        """Returns for each line whether it matches. Raises ToolError(TIMEOUT) after ``seconds`` of computing time."""
        limit = ComputeLimit(seconds)
        try:
            return [search(self._wanted, line.removesuffix("\r"), limit) is not None for line in lines]
        except TimeoutError:
            raise ToolError(
                ErrorType.TIMEOUT,
                f"the filter took longer than {seconds:g} s; use a simpler one, or none. The output is kept.",
            ) from None
