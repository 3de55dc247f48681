"""What the fake model replies: turns of content blocks, the faults before them, and scripts inside a prompt.

A prompt whose first user text holds ``FAKE: {…}`` brings its own script, which works across processes:

    FAKE: {"turns": [{"blocks": [{"type": "text", "text": "hello"}], "faults": [{"kind": "refuse", "status": 529}]}]}
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

MARK = "FAKE:"


@dataclass(frozen=True)
class Fault:
    """One request that goes wrong. ``after`` counts the events that are sent before an in-stream fault."""

    kind: Literal["refuse", "overload", "cut", "reset", "stall", "bad_json"]
    status: int = 529
    headers: Mapping[str, str] = field(default_factory=dict)
    error: Mapping[str, Any] = field(default_factory=dict)
    after: int = 4


def refuse(status: int, *, error: Mapping[str, Any] | None = None, **headers: str) -> Fault:
    """An HTTP error; keyword arguments are headers (``retry_after_ms="5"``)."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Fault("refuse", status=status, headers=named, error=error or {})


def overload(after: int = 4) -> Fault:
    """An ``error`` event inside the stream."""
    return Fault("overload", after=after)


def cut(after: int = 4) -> Fault:
    """The HTTP body ends cleanly, but the message does not."""
    return Fault("cut", after=after)


def reset(after: int = 4) -> Fault:
    """The connection is aborted (TCP RST)."""
    return Fault("reset", after=after)


def stall(after: int = 4) -> Fault:
    """Nothing more comes until the client hangs up."""
    return Fault("stall", after=after)


def bad_json(after: int = 4) -> Fault:
    """An event whose data is no JSON."""
    return Fault("bad_json", after=after)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thinking(words: str) -> dict[str, Any]:
    """The server signs it: the signature binds it to everything before it."""
    return {"type": "thinking", "thinking": words}


_ids = itertools.count(1)


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_fake_{next(_ids)}", "name": name, "input": arguments}


@dataclass(frozen=True)
class Turn:
    """One reply. A tool_use block may say ``raw`` instead of ``input``: its JSON text, sent as it is.

    ``delay`` is the seconds before the answer, ``pace`` those between two events, ``pieces`` the deltas a block.
    ``calls_anyway``: its calls are made where ``tool_choice`` forbids them, too. ``details`` are those of the stop
    reason. ``raw``: the events of the stream, sent as they are, whatever the other fields are.
    """

    blocks: Sequence[dict[str, Any]] = ()
    stop: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    delay: float = 0.0
    pace: float = 0.0
    pieces: int = 4
    faults: Sequence[Fault] = ()
    calls_anyway: bool = False
    details: Mapping[str, Any] | None = None
    raw: Sequence[Mapping[str, Any]] = ()

    @property
    def stop_reason(self) -> str:
        calls = any(block["type"] == "tool_use" for block in self.blocks)
        return self.stop or ("tool_use" if calls else "end_turn")

    def without_calls(self) -> Turn:
        """The reply where ``tool_choice`` forbids tools."""
        if self.calls_anyway:
            return self
        words = [block for block in self.blocks if block["type"] != "tool_use"]
        return replace(self, blocks=words or [text("Words only.")])


@dataclass
class Script:
    """The turns for the conversations whose first user text holds ``contains``."""

    contains: str
    turns: Sequence[Turn]
    _failed: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])

    def next(self, conversation: str, replies: int) -> tuple[Turn, Fault | None]:
        """The turn after so many replies, and its next fault: each fault is played once a conversation."""
        turn = self.turns[min(replies, len(self.turns) - 1)]
        failed = self._failed.get((conversation, replies), 0)
        if failed >= len(turn.faults):
            return turn, None
        self._failed[conversation, replies] = failed + 1
        return turn, turn.faults[failed]


def script_in(conversation: str) -> Script | None:
    """The script that a first user text brings with it."""
    _, found, rest = conversation.partition(MARK)
    if not found:
        return None
    value, _ = json.JSONDecoder().raw_decode(rest.lstrip())
    turns = [
        Turn(**{**turn, "faults": [Fault(**fault) for fault in turn.get("faults", [])]}) for turn in value["turns"]
    ]
    return Script(MARK, turns)
