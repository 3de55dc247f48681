"""Thinking in messages: providers sign it, and refuse it where the signature is lost or of another model."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import to_json

from .base import NO_WORDS

_KINDS = ("thinking", "redacted_thinking")
_MARKS = tuple(b'"type":"%b"' % kind.encode() for kind in _KINDS)


def has_thinking(message: bytes) -> bool:
    return any(mark in message for mark in _MARKS)


def without_thinking(message: bytes) -> bytes:
    """Returns the message without its thinking; the same bytes where it has none."""
    if not has_thinking(message):
        return message
    parsed: dict[str, Any] = json.loads(message)
    content = [block for block in parsed["content"] if block.get("type") not in _KINDS]
    return to_json(parsed | {"content": content or [{"type": "text", "text": NO_WORDS}]})
