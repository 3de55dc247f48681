"""Regular expressions of scripts: each search has a time, because the worker's event loop waits for it."""

from __future__ import annotations

from collections.abc import Iterator

import regex

from shared.errors import ModelUnavailable

SECONDS = 0.5


def search(pattern: str, text: str, *, lines: bool = False) -> bool:
    """Whether there is a match; with ``lines``, ^ and $ are those of each line. Raises ModelUnavailable."""
    return next(finditer(pattern, text, lines=lines), None) is not None


def finditer(pattern: str, text: str, *, lines: bool = True) -> Iterator[regex.Match[str]]:
    """All matches. Raises ModelUnavailable where looking for them takes too long."""
    try:
        yield from regex.finditer(pattern, text, regex.MULTILINE if lines else 0, timeout=SECONDS)
    except TimeoutError:
        raise ModelUnavailable(
            f"a regular expression of the script takes more than {SECONDS} s on this text; write it without nested "
            "repetitions"
        ) from None
