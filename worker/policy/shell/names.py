"""Sets of names, written as texts."""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    """Returns the words of a text."""
    return frozenset(text.split())
