"""The conversation: append-only; each message is encoded once, when it is added.

Provider signatures bind to the exact prefix, so nothing that was sent is ever edited.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic_core import to_json

from worker.models.base import Call, Reply, with_call_keys
from worker.tools.base import ToolResult

RESTART = b'{"restart":true}'
"""Separates two conversations of one run in the store: what precedes it is no longer sent."""
PROBLEMS = b',"problems":'
"""The last key of a stored reply: which of its calls could not be parsed, and why. Never sent: endpoints reject it."""


class History:
    """The messages of one run's current conversation. ``on_append`` is called with every new entry, to store it."""

    def __init__(self, kept: Sequence[bytes] = (), on_append: Callable[[bytes], None] = lambda entry: None) -> None:
        over = max((at for at, entry in enumerate(kept) if entry == RESTART), default=-1)
        present = [_told_apart(entry) for entry in kept[over + 1 :]]
        self.messages: list[bytes] = [message for message, _ in present]
        self._problems = present[-1][1] if present else {}
        """Parse errors of the last message's calls, by call id."""
        self._on_append = on_append

    @property
    def size(self) -> int:
        """Total size of all messages in bytes."""
        return sum(map(len, self.messages))

    def restart(self, text: str) -> None:
        """Begins a new conversation with this user message; the previous one stays stored, but is not sent."""
        self._on_append(RESTART)
        self.messages = []
        self.ask(text)

    def ask(self, text: str) -> None:
        """Adds a user message."""
        self._append(user_message(text))

    def add(self, reply: Reply) -> None:
        """Adds the model's reply verbatim: text, thinking with its signature, and calls."""
        self._problems = {call.id: call.problem for call in reply.calls if call.problem}
        message = _encoded({"role": "assistant", "content": reply.content})
        self.messages.append(message)
        self._on_append(message[:-1] + PROBLEMS + to_json(self._problems) + b"}" if self._problems else message)

    def answer(self, answers: Iterable[tuple[Call, ToolResult]], note: str = "") -> None:
        """Adds one result per call, in call order, as one message; ``note`` is appended as text."""
        content: list[dict[str, Any]] = []
        for call, result in answers:
            block = {"type": "tool_result", "tool_use_id": call.id, "content": result.for_model}
            content.append(block if result.success else block | {"is_error": True})
        if note:
            content.append({"type": "text", "text": note})
        self._append(_encoded({"role": "user", "content": content}))

    def unanswered(self, turn: int) -> list[Call]:
        """Returns the calls of the last message, that of ``turn``, that a crash or a limit left without a result."""
        last = json.loads(self.messages[-1]) if self.messages else {}
        if last.get("role") != "assistant":
            return []
        calls = [
            Call(
                block["id"],
                block["name"],
                block["input"] if isinstance(block["input"], dict) else {},
                self._problems.get(block["id"]),
            )
            for block in last["content"]
            if block["type"] == "tool_use"
        ]
        return with_call_keys(calls, turn)

    def _append(self, entry: bytes) -> None:
        self.messages.append(entry)
        self._on_append(entry)


def user_message(text: str) -> bytes:
    """Returns a user message, encoded."""
    return _encoded({"role": "user", "content": [{"type": "text", "text": text}]})


def _told_apart(kept: bytes) -> tuple[bytes, dict[str, str]]:
    """Splits a stored entry into the message that was sent, byte for byte, and the problems of its calls."""
    message, found, _ = kept.rpartition(PROBLEMS)
    problems: dict[str, str] = json.loads(kept).get("problems", {}) if found else {}
    return (message + b"}", problems) if problems else (kept, {})


def _encoded(message: dict[str, Any]) -> bytes:
    return to_json(message)
