"""Server-sent events from raw bytes: whatever the network's chunks, the same JSON objects come out, in order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from worker.models.retry import Failure
from worker.strict_json import whole

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""Cap on one unfinished event; a peer that never ends one must not fill the memory."""


class BrokenStream(Failure):
    """The bytes are no stream of JSON events, or the events do not fit each other. The message says where."""

    def __init__(self, message: str) -> None:
        super().__init__(f"the stream is broken: {message}", passing=True)


class EventDecoder:
    """An incremental decoder. Costs one look at each byte, and one ``json.loads`` an event.

    Events are told apart by the ``type`` inside their data, so the names on ``event:`` lines are not needed.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._after_lf = False

    def feed(self, chunk: bytes) -> Iterable[dict[str, Any]]:
        """The events that are complete with this chunk, each parsed when it is asked for.

        Raises BrokenStream for data that is not a JSON object, after the events before it.
        """
        chunk = self._with_unix_lines(chunk)
        if not chunk:
            return ()
        ends_event = b"\n\n" in chunk or (self._after_lf and chunk[0] == 0x0A)
        self._parts.append(chunk)
        self._size += len(chunk)
        self._after_lf = chunk.endswith(b"\n")
        if not ends_event:
            if self._size > MAX_EVENT_BYTES:
                raise BrokenStream(f"an event is longer than {MAX_EVENT_BYTES} bytes")
            return ()
        data = b"".join(self._parts)
        end = data.rindex(b"\n\n") + 2
        rest = data[end:]
        self._parts, self._size, self._after_lf = [rest], len(rest), rest.endswith(b"\n")
        # Cut at an empty line, so never inside a character: decoding all at once is both cheap and right.
        text = data[:end].decode("utf-8", "replace")
        return (_parsed(payload) for block in text.split("\n\n") if (payload := _payload(block)))

    def _with_unix_lines(self, chunk: bytes) -> bytes:
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return chunk
        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk


def _payload(block: str) -> str | None:
    """The data of one event; None for comments, other fields and the end marker some gateways add."""
    name, found, data = block.partition("\ndata: ")
    if not (found and name.startswith("event: ") and "\n" not in name and "\n" not in data):
        lines = block.removeprefix("\ufeff").split("\n")
        data = "\n".join(line[5:].removeprefix(" ") for line in lines if line.startswith("data:"))
    return None if data in ("", "[DONE]") else data


def _parsed(payload: str) -> dict[str, Any]:
    try:
        event = whole(json.loads(payload), payload)
    except (ValueError, RecursionError):
        raise BrokenStream(f"an event is not JSON: {payload[:80]!r}") from None
    if not isinstance(event, dict):
        raise BrokenStream(f"an event is not a JSON object: {payload[:80]!r}")
    return event
