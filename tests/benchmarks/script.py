"""What the mock is to do: words in the first user message, ``SCRIPT: calls=4 delay=100 text=106 spread=200``.

calls=N   so many turns each call ``read_file``, one more turn ends the work (default 0)
delay=MS  thinking time before the first byte (default 0)
text=N    text deltas of a turn (default 6)
spread=MS the events of a turn come one by one over this time, not in one burst (default 0)
fails=1   each request is answered with status 500 (default 0)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

FILE = "notes.txt"
FINAL = "FINAL"
INPUT_PIECES = 4
"""In so many deltas the arguments of a call come."""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


@dataclass(frozen=True)
class Answer:
    """One turn: the whole answer in one chunk, and the chunks of one that comes event by event."""

    burst: bytes
    pieces: tuple[bytes, ...]


@dataclass(frozen=True)
class Script:
    calls: int = 0
    delay: int = 0
    text: int = 6
    spread: int = 0
    fails: int = 0

    @classmethod
    @cache
    def read(cls, words: bytes) -> Script:
        pairs = (word.partition("=") for word in words.decode().split())
        return cls(**{name: int(value) for name, _, value in pairs})

    @property
    def turns(self) -> int:
        return self.calls + 1

    def task(self) -> str:
        words = " ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"SCRIPT: {words}\nRead {FILE} as often as you need to, then say what is in it."

    def events(self, turn: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """The stream of one turn: the name and the other fields of each event."""
        last = turn >= self.calls
        usage = {"input_tokens": 1000, "output_tokens": 1}
        head = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": "mock", "content": []}
        yield "message_start", {"message": head | {"stop_reason": None, "stop_sequence": None, "usage": usage}}
        words = [f"{FINAL} " if last and not i else f"word{i} " for i in range(max(self.text, int(last)))]
        if words:
            yield from _block(0, {"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in words])
        if not last:
            call = {"type": "tool_use", "id": f"toolu_{turn}", "name": "read_file", "input": {}}
            # Never twice the same: a run that repeats itself is stopped.
            arguments = json.dumps({"path": FILE, "limit": 1000 + turn})
            size = -(-len(arguments) // INPUT_PIECES)
            cuts = [arguments[at : at + size] for at in range(0, len(arguments), size)]
            deltas = [{"type": "input_json_delta", "partial_json": cut} for cut in cuts]
            yield from _block(1 if words else 0, call, deltas)
        stop = {"stop_reason": "end_turn" if last else "tool_use", "stop_sequence": None}
        yield "message_delta", {"delta": stop, "usage": {"output_tokens": self.text + 20}}
        yield "message_stop", {}


@cache
def answer(script: Script, turn: int) -> Answer:
    """The answer to a conversation with so many tool results, encoded once."""
    events = [_encoded(name, fields) for name, fields in script.events(turn)]
    return Answer(HEAD + _chunk(b"".join(events)) + END, tuple(map(_chunk, events)))


def _block(index: int, start: dict[str, Any], deltas: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "content_block_start", {"index": index, "content_block": start}
    for delta in deltas:
        yield "content_block_delta", {"index": index, "delta": delta}
    yield "content_block_stop", {"index": index}


def _encoded(name: str, fields: dict[str, Any]) -> bytes:
    data = json.dumps({"type": name} | fields, separators=(",", ":"))
    return f"event: {name}\ndata: {data}\n\n".encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
