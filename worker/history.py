"""The conversation: append-only, each message encoded once, when it joins.

Provider signatures bind to the exact prefix, so nothing that was sent is ever edited.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic_core import to_json

from worker.models.base import Call, Reply, keyed
from worker.tools.base import ToolResult

RESTART = b'{"restart":true}'
"""Kept between two conversations of one run: what stands before it is over."""
PROBLEMS = b',"problems":'
"""The last key of a kept reply: which of its calls could not be read, and why. Endpoints refuse keys of ours."""


class History:
    """The messages of one run's present conversation. ``on_append`` hears of every new entry, to keep it."""

    def __init__(self, kept: Sequence[bytes] = (), on_append: Callable[[bytes], None] = lambda entry: None) -> None:
        over = max((at for at, entry in enumerate(kept) if entry == RESTART), default=-1)
        present = [_told_apart(entry) for entry in kept[over + 1 :]]
        self.messages: list[bytes] = [message for message, _ in present]
        self._problems = present[-1][1] if present else {}
        """Of the last message's calls, by their ids."""
        self._on_append = on_append

    @property
    def size(self) -> int:
        """Bytes of all messages together."""
        return sum(map(len, self.messages))

    def restart(self, text: str) -> None:
        """Begins a fresh conversation with these words of ours; the one before stays as it was, but is not sent."""
        self._on_append(RESTART)
        self.messages = []
        self.ask(text)

    def ask(self, text: str) -> None:
        """Adds words of ours as the user's."""
        self._append(user_message(text))

    def add(self, reply: Reply) -> None:
        """Adds the model's reply as it came: text, thinking with its signature, and calls."""
        self._problems = {call.id: call.problem for call in reply.calls if call.problem}
        message = _encoded({"role": "assistant", "content": reply.content})
        self.messages.append(message)
        self._on_append(message[:-1] + PROBLEMS + to_json(self._problems) + b"}" if self._problems else message)

    def answer(self, answers: Iterable[tuple[Call, ToolResult]], note: str = "") -> None:
        """Adds one answer a call, in the order of asking, in one message; ``note`` follows them in our own words."""
        content: list[dict[str, Any]] = []
        for call, result in answers:
            block = {"type": "tool_result", "tool_use_id": call.id, "content": result.for_model}
            content.append(block if result.success else block | {"is_error": True})
        if note:
            content.append({"type": "text", "text": note})
        self._append(_encoded({"role": "user", "content": content}))

    def unanswered(self, turn: int) -> list[Call]:
        """The calls of the last message, that of ``turn``, that nobody has answered yet: what a crash or a limit left
        open."""
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
        return keyed(calls, turn)

    def ends_with_user(self) -> bool:
        return bool(self.messages) and self.messages[-1].startswith(b'{"role":"user"')

    def _append(self, entry: bytes) -> None:
        self.messages.append(entry)
        self._on_append(entry)


def user_message(text: str) -> bytes:
    """A message of ours, encoded."""
    return _encoded({"role": "user", "content": [{"type": "text", "text": text}]})


def _told_apart(kept: bytes) -> tuple[bytes, dict[str, str]]:
    """A kept entry as the message that was sent, byte by byte, and the problems of its calls."""
    message, found, _ = kept.rpartition(PROBLEMS)
    problems: dict[str, str] = json.loads(kept).get("problems", {}) if found else {}
    return (message + b"}", problems) if problems else (kept, {})


def _encoded(message: dict[str, Any]) -> bytes:
    return to_json(message)
