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
    if isinstance(content := parsed["content"], list):
        content = [block for block in content if block.get("type") not in _KINDS]
        parsed["content"] = content or [{"type": "text", "text": NO_WORDS}]
    return to_json(parsed)
