"""A reply from raw bytes: server-sent events, deltas as they come, and the whole of it at the end."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from shared.delegation import Usage
from worker.models.base import Call, Part, Price, Reply, ReplyStarted, TextPart, ThinkingPart
from worker.models.retry import Failure, told_in_stream
from worker.strict_json import check_depth, loads, replace_lone_surrogates

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""Cap on one unfinished event; a peer that never ends one must not fill the memory."""
GROWS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""The deltas that come in many pieces, and the key of the piece."""
CUT = {"max_tokens", "model_context_window_exceeded"}
"""Stop reasons after which the last words, and so the calls, may be incomplete."""


class BrokenStream(Failure):
    """The bytes are no stream of JSON events, or the events do not fit each other. The message says where."""

    def __init__(self, message: str) -> None:
        super().__init__(f"the stream is broken: {message}", retryable=True)


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
        event = replace_lone_surrogates(json.loads(payload), payload)
    except (ValueError, RecursionError):
        raise BrokenStream(f"an event is not JSON: {payload[:80]!r}") from None
    if not isinstance(event, dict):
        raise BrokenStream(f"an event is not a JSON object: {payload[:80]!r}")
    return event


@dataclass(slots=True)
class _Block:
    start: dict[str, Any]
    pieces: list[str] = field(default_factory=list[str])

    def joined(self, key: str) -> str:
        return str(self.start.get(key) or "") + "".join(self.pieces)


class ReplyAssembler:
    """One reply in the making. Feed it events until ``done`` (the message's end was seen) or ``failure``.

    Pieces are collected and joined once, so that a long tool input costs no more a byte than a short one.
    """

    def __init__(self, price: Price | None) -> None:
        self._price = price
        self._blocks: dict[int, _Block] = {}
        self._counts: dict[str, int] = {}
        self.begun = False
        self._stop_reason = ""
        self.done = False
        self.failure: Failure | None = None

    def take(self, events: Iterable[dict[str, Any]]) -> list[Part]:
        """What these events say: that the reply has begun, and deltas, neighbours of a kind joined.

        Where one of them is an ``error`` or does not fit, ``failure`` tells; what came before it is said and counted.
        """
        shown: list[tuple[type[TextPart] | type[ThinkingPart], list[str]]] = []
        try:
            for event in events:
                kind, text = self._apply(event)
                if kind is None or not text:
                    continue
                if shown and shown[-1][0] is kind:
                    shown[-1][1].append(text)
                else:
                    shown.append((kind, [text]))
        except Failure as failure:
            self.failure = failure
        begun: list[Part] = []
        if self._counts and not self.begun:
            self.begun = True
            begun.append(ReplyStarted(self.usage))
        return begun + [kind("".join(texts)) for kind, texts in shown]

    @property
    def usage(self) -> Usage:
        """What is known so far of this try's tokens and cost."""
        usage = Usage(
            input_tokens=self._counts.get("input_tokens", 0),
            output_tokens=self._counts.get("output_tokens", 0),
            cache_read_tokens=self._counts.get("cache_read_input_tokens", 0),
            cache_write_tokens=self._counts.get("cache_creation_input_tokens", 0),
        )
        if not self._counts:
            return usage
        return usage.model_copy(update={"cost_usd": self._price.cost(usage) if self._price else None})

    def finish(self) -> Reply:
        """The finished reply. Call it once ``done`` is true."""
        content: list[dict[str, Any]] = []
        calls: list[Call] = []
        given = set[str]()
        for _, block in sorted(self._blocks.items()):
            replace_lone_surrogates, call = _finished(block, cut=self._stop_reason in CUT)
            if replace_lone_surrogates.get("type") == "text" and not replace_lone_surrogates["text"].strip():
                continue  # the API sends blank texts but refuses to take them back
            content.append(replace_lone_surrogates)
            if call:
                replace_lone_surrogates["id"] = _unlike(call.id, given)
                calls.append(replace(call, id=replace_lone_surrogates["id"]))
        return Reply(
            content=content,
            stop_reason=self._stop_reason,
            usage=self.usage,
            text="".join(block["text"] for block in content if block.get("type") == "text"),
            thinking="".join(block.get("thinking", "") for block in content if block.get("type") == "thinking"),
            calls=calls,
        )

    def _apply(self, event: dict[str, Any]) -> tuple[type[TextPart] | type[ThinkingPart] | None, str]:
        match event.get("type"):
            case "content_block_delta":
                return self._grow(event)
            case "content_block_start":
                start = event.get("content_block") or {}
                self._blocks[event.get("index", len(self._blocks))] = _Block(start)
                return _shown(start)
            case "message_start":
                self._count(event.get("message") or {})
            case "message_delta":
                self._count(event)
                self._stop_reason = (event.get("delta") or {}).get("stop_reason") or self._stop_reason
            case "message_stop":
                self.done = True
            case "error":
                raise told_in_stream(event.get("error") or {})
            case _:
                pass  # ping, content_block_stop, and what later versions of the API may add
        return None, ""

    def _grow(self, event: dict[str, Any]) -> tuple[type[TextPart] | type[ThinkingPart] | None, str]:
        block = self._blocks.get(event.get("index", -1))
        if block is None:
            raise BrokenStream(f"a delta for block {event.get('index')}, which was never started")
        delta: dict[str, Any] = event.get("delta") or {}
        kind = delta.get("type", "")
        if key := GROWS.get(kind):
            block.pieces.append(delta.get(key) or "")
            return _shown(delta)
        if kind == "citations_delta":
            block.start["citations"] = [*(block.start.get("citations") or []), delta.get("citation")]
            return None, ""
        for key, value in delta.items():  # signatures, and deltas of block types that are not known here
            if key != "type":
                old = block.start.get(key)
                block.start[key] = old + value if isinstance(old, str) and isinstance(value, str) else value
        return None, ""

    def _count(self, holder: dict[str, Any]) -> None:
        """Counts are cumulative, so the last one said holds; one that is null says nothing."""
        for key, value in (holder.get("usage") or {}).items():
            if isinstance(value, int):
                self._counts[key] = value


def _shown(piece: dict[str, Any]) -> tuple[type[TextPart] | type[ThinkingPart] | None, str]:
    match piece.get("type"):
        case "text_delta" | "text":
            return TextPart, piece.get("text") or ""
        case "thinking_delta" | "thinking":
            return ThinkingPart, piece.get("thinking") or ""
        case _:
            return None, ""


def _finished(block: _Block, *, cut: bool) -> tuple[dict[str, Any], Call | None]:
    """The block as it goes back to the API, and the call in it if it is one."""
    match block.start.get("type"):
        case "text" | "thinking" as key:
            return {**block.start, key: block.joined(key)}, None
        case "tool_use":
            arguments, problem = _arguments(block)
            if cut:
                problem = "the reply was cut at its length limit before this call was certainly complete"
            name = str(block.start.get("name") or "")
            replace_lone_surrogates = {**block.start, "name": name, "input": arguments}
            return replace_lone_surrogates, Call(str(block.start.get("id") or ""), name, arguments, problem)
        case _:
            return ({**block.start, "input": _arguments(block)[0]} if block.pieces else block.start), None


def _unlike(id: str, given: set[str]) -> str:
    """An id that no other call of the reply has: endpoints give one to two calls, or none, and each needs an answer."""
    ids = (id if number == 1 and id else f"{id or 'call'}-{number}" for number in count(1))
    unlike = next(each for each in ids if each not in given)
    given.add(unlike)
    return unlike


def _arguments(block: _Block) -> tuple[dict[str, Any], str | None]:
    text = "".join(block.pieces)
    try:
        arguments = loads(text) if text.strip() else check_depth(block.start.get("input") or {})
    except ValueError as error:
        return {}, f"the arguments are not valid JSON ({error}): {text[:200]}"
    if not isinstance(arguments, dict):
        return {}, f"the arguments must be a JSON object, not {text[:200]}"
    return arguments, None
