"""The size of an event: its JSON is cut to a cap, so that it can still be parsed."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

from pydantic import BaseModel

from .events import Envelope
from .text import CUT_NOTE, clip

MAX_EVENT_BYTES = 64 * 1024
"""Cap on one event's JSON."""
SIZES = (0, 1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000, 2000, 4000, 8000, 16_000)
"""Lengths to try for texts (characters), lists and objects (entries); the last one that fits is used."""
SHORTEST_TEXT = 64
"""No text is cut below this length, so that times, ids and type names stay intact."""


def capped(text: str) -> str:
    """Returns the JSON of an envelope, cut to at most ``MAX_EVENT_BYTES`` bytes.

    Texts, lists and objects are truncated; required fields stay, so that the result can always be parsed.
    """
    if not _too_long(text):
        return text
    event, whole = Envelope.from_json(text).event, json.loads(text)
    fits = ""
    for size in SIZES:
        try:
            text = json.dumps(_Cut(size).of(event, whole), ensure_ascii=False)
        except _TooLongError:
            break
        if fits and _too_long(text):
            break
        fits = text
    return fits


def _too_long(text: str) -> bool:
    # A character has 4 bytes at the most, so that most events are not encoded a second time.
    return len(text) > MAX_EVENT_BYTES // 4 and len(text.encode()) > MAX_EVENT_BYTES


class _TooLongError(Exception):
    """The truncated value would exceed the cap. Ends the work early: its time must not grow with the event."""


class _Cut:
    """Copies a value with every text and list truncated to ``size``."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._room = MAX_EVENT_BYTES

    def of(self, value: Any, dumped: Any) -> Any:
        """Returns the copy. ``dumped`` is the JSON form of ``value``, which shows what is a field and what is data."""
        if isinstance(value, BaseModel):
            names = {field.alias or name: name for name, field in type(value).model_fields.items()}
            return {
                key: self.of(getattr(value, names[key]), part) if key in names else part for key, part in dumped.items()
            }
        if isinstance(value, list):
            return [self.of(part, shown) for part, shown in islice(zip(value, dumped, strict=True), self._size)]
        return self._free(dumped)

    def _free(self, value: Any) -> Any:
        self._take(1)
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            kept = {self._text(key): self._free(part) for key, part in islice(value.items(), self._size)}
            return kept | ({"…": self._note(value)} if len(value) > self._size else {})
        if isinstance(value, list):
            kept = [self._free(part) for part in value[: self._size]]
            return kept + ([self._note(value)] if len(value) > self._size else [])
        return value

    def _text(self, text: str) -> str:
        kept = clip(text, max(self._size, SHORTEST_TEXT))
        self._take(len(kept))
        return kept

    def _note(self, cut: dict[str, Any] | list[Any]) -> str:
        return f"{CUT_NOTE}{len(cut)} entries, {self._size} allowed]"

    def _take(self, characters: int) -> None:
        self._room -= characters
        if self._room < 0:
            raise _TooLongError
