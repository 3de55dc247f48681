"""Markup that controls a conversation, where foreign text imitates it: made harmless, and counted.

A ``~`` after the ``<`` makes it harmless. Nothing is lost: where one is there already, another one is added, so taking
one away restores the text. JSON stays valid JSON.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .text import count

_NAMES = (
    "system_hint",  # worker/core/prompt.py
    "caller_message",  # worker/inbox.py
    "tool_calls?",  # worker/xml_calls
    "tool_results?",
    "tool_use",  # what the same is called elsewhere; the agent that reads a result may be any
    "function_calls?",
    "function_results?",
    "system-reminder",
    "antml:[a-z_]+",
)
_SPECIAL = r"\|[a-z_]{2,32}\|>"
"""Tokens of chat templates, such as ``<|im_start|>``: to the letter, as operators of languages look alike."""


@dataclass(frozen=True, slots=True)
class HarmlessText:
    """A text without imitations, and how many it had."""

    text: str
    places: int = 0

    @property
    def noted(self) -> str:
        """The text, with a note for its reader where it is not the original."""
        return f"{self.text}\n[{note(self.places)}]" if self.places else self.text


def note(places: int) -> str:
    """Returns the note for readers of a text in which so many places were changed."""
    return f'{count(places, "place")} imitated control markup: the "~" after "<" there is not in the original'


@lru_cache(maxsize=64)
def _pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join((*_NAMES, *map(re.escape, tags)))
    spaces = " {0,32}"  # bounded, so that a text of nothing but these takes linear time
    return re.compile(rf"<(?=~*(?:{spaces}(?:/{spaces})?(?:{names})(?![\w-])|{_SPECIAL}))", re.IGNORECASE)


def harmless(text: str, tags: Collection[str] = ()) -> HarmlessText:
    """Returns the text without imitations of control markup; ``tags`` are further names of elements that control."""
    return HarmlessText(*_pattern(tuple(tags)).subn("<~", text))


def harmless_value(value: Any) -> tuple[Any, int]:
    """Returns a value of JSON with all its texts made harmless, and the number of places."""
    if isinstance(value, str):
        found = harmless(value)
        return found.text, found.places
    if isinstance(value, dict):
        pairs = [(harmless(str(key)), harmless_value(part)) for key, part in value.items()]
        return {key.text: part for key, (part, _) in pairs}, sum(key.places + number for key, (_, number) in pairs)
    if isinstance(value, list | tuple):
        parts = [harmless_value(part) for part in value]
        return [part for part, _ in parts], sum(number for _, number in parts)
    return value, 0
