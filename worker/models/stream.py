"""Streaming of replies: a decoder of server-sent events, and an assembler of deltas and the final reply."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from ...shared.delegation import Usage
from ...shared.text import clip
from ..schemas.strict_json import check_depth, loads, replace_lone_surrogates
from .base import Call, Part, Price, Reply, ReplyStarted, TextPart, ThinkingPart, priced
from .credentials import URL
from .endings import is_cut
from .retry import Failure, classify_error

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""Cap on an incomplete event, so that a peer that never ends one cannot exhaust the memory."""
APPENDED_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""Delta types whose text is appended to the block's, with its key."""
PARTS: dict[str, type[TextPart] | type[ThinkingPart]] = {"text": TextPart, "thinking": ThinkingPart}
"""What the text under a key is shown as."""
BLOCK_TYPES = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking"}
"""The type of the blocks that a type of deltas belongs to, where gateways confuse them."""
TAGGED_THINKING = re.compile(r"\s*<(think|thinking|thought)>(.*?)</\1>\s*", re.DOTALL)
"""Thinking at the beginning of a text, as models write it whose gateway does not separate it."""
_ENDS = {b"\n\n": 2, b"\nevent:": 1, b"}\ndata: {": 2, b"}\ndata:{": 2}
"""Where events end, with the bytes that belong to the one that ends: some gateways send no empty lines."""
_LONGEST_END = max(map(len, _ENDS)) - 1
_NEXT_EVENT = re.compile(r"\n(?=event:)")
_OTHER_APIS = {
    "choices": "OpenAI's Chat Completions API",
    "response.": "OpenAI's Responses API",
    "candidates": "Gemini's API",
    "messageStart": "the Converse API of Amazon Bedrock",
    "message-start": "Cohere's Chat API",
    "stream-start": "Cohere's Chat API",
    "eval_count": "Ollama's API",
    "done": "Ollama's API",
    "token": "the API of Text Generation Inference",
}
"""Keys of an event, or beginnings of its type, by which the stream of another API is known."""
BYTES_PER_TOKEN = 3
"""For estimates where an endpoint leaves out token counts: less than the average, so that they err on the high side."""
PROMPT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
MAX_DETAIL = 1000
"""Characters of a refusal's category and explanation that are kept."""
MAX_REASON = 64
"""Characters of a reason for a cache miss that are kept."""
CUT_CALL = (
    "the reply was cut at its length limit before this call was certainly complete, so it was not executed. Make it in "
    "parts: write the first part of a long file with write_file, and append each further part in a call of its own, "
    "with edit_file or a command"
)


class BrokenStream(Failure):
    """The bytes are not a stream of JSON events, or the events are inconsistent. The message shows the position."""

    def __init__(self, message: str) -> None:
        super().__init__(f"the stream is broken: {message}", retryable=True)


class EventDecoder:
    """Incremental decoder: parses each event once, and joins its bytes once.

    The data holds the ``type`` of an event, so ``event:`` lines are ignored.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._tail = b""
        """The last bytes, in which the end of an event may have begun."""

    def feed(self, chunk: bytes) -> Iterable[dict[str, Any]]:
        """Returns the events that this chunk completes, parsed lazily.

        Raises BrokenStream for data that is not a JSON object, after the events before it.
        """
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return ()
        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._parts.append(chunk)
        self._size += len(chunk)
        seen = self._tail + chunk
        self._tail = seen[-_LONGEST_END:]
        if not any(end in seen for end in _ENDS):
            if self._size > MAX_EVENT_BYTES:
                raise BrokenStream(f"an event is longer than {MAX_EVENT_BYTES} bytes")
            return ()
        data = b"".join(self._parts)
        end = max(data.rfind(end) + length for end, length in _ENDS.items() if end in data)
        rest = data[end:]
        self._parts, self._size, self._tail = [rest], len(rest), rest[-_LONGEST_END:]
        return _events_in(data[:end])

    def end(self) -> Iterator[dict[str, Any]]:
        """Yields the events at the end of the stream whose last line end or empty line is missing.

        One that is cut there is not complete as JSON, and is left out.
        """
        data, self._parts, self._size = b"".join(self._parts), [], 0
        with suppress(BrokenStream):
            yield from _events_in(data)


def _events_in(data: bytes) -> Iterator[dict[str, Any]]:
    """Yields the events. Empty lines end them; where a gateway sends none, so does the name of the next one."""
    # A line end is never inside a multi-byte character, so the data can be decoded in one call.
    for block in data.decode("utf-8", "replace").split("\n\n"):
        name, _, payload = block.partition("\ndata: ")
        if payload[:1] == "{" and "\n" not in payload and "\n" not in name and name.startswith("event: "):
            yield _parse_event(payload)  # nearly all events: what follows takes as long as to parse one
            continue
        for event in _NEXT_EVENT.split(block):
            for payload in _payloads(event):
                yield _parse_event(payload)


def _payloads(block: str) -> Sequence[str]:
    """Returns the data of one event, or of several whose empty lines are missing.

    Comments, other fields and the ``[DONE]`` that some gateways send are left out.
    """
    fields = block.removeprefix("\ufeff").split("\n")
    lines = [line[5:].removeprefix(" ") for line in fields if line.startswith("data:")]
    lines = [line for line in lines if line.strip() not in ("", "[DONE]")]
    # Of an event over several lines, none is an object by itself.
    return lines if all(map(_is_object, lines[:2])) else ["\n".join(lines)]


def _is_object(line: str) -> bool:
    return line.startswith("{") and line.rstrip().endswith("}")


def _parse_event(payload: str) -> dict[str, Any]:
    try:
        try:
            event = from_json(payload)
        except ValueError:  # also for half a character or many levels, which only the slower parser reads
            event = replace_lone_surrogates(json.loads(payload), payload)
    except (ValueError, RecursionError):
        raise BrokenStream(f"an event is not JSON: {payload[:80]!r}") from None
    if not isinstance(event, dict):
        raise BrokenStream(f"an event is not a JSON object: {payload[:80]!r}")
    return event


_Delta = tuple[type[TextPart] | type[ThinkingPart] | None, str]
"""What an event adds to the text or the thinking of a reply, if anything."""


@dataclass(slots=True)
class _Block:
    start: dict[str, Any]
    misplaced: bool = False
    """Whether the endpoint sent its deltas for a block of another type."""
    pieces: list[str] = field(default_factory=list[str])

    def joined(self, key: str) -> str:
        return str(self.start.get(key) or "") + "".join(self.pieces)

    def repeats(self, other: _Block) -> bool:
        """Returns whether it begins as the other one does."""
        kind = str(self.start.get("type"))
        alike = all(self.start.get(key) == other.start.get(key) for key in ("type", "name"))
        return alike and self.joined(kind).startswith(other.joined(kind))


class ReplyAssembler:
    """Assembles one reply. Feed it events until ``done`` (the end of the message) or ``failure``.

    A reply is complete once ``stop_reason`` is set, even where its end is missing. Pieces are joined once, so that the
    cost of a long tool input is linear. ``prompt_tokens`` is an estimate, for endpoints that leave out token counts.
    ``setting`` names the address for errors.
    """

    def __init__(self, price: Price | None, prompt_tokens: int = 0, setting: str = URL) -> None:
        self._price = price
        self._setting = setting
        self._prompt_tokens = prompt_tokens
        self._blocks: list[_Block] = []
        self._open: dict[tuple[int, str | None], _Block] = {}
        """The last block of each index, and by type those of its misplaced deltas."""
        self._under_way: set[int] = set()
        """The indices of the blocks whose end has not come."""
        self._restarted = 0
        """How many blocks precede the last start of the message; gateways may repeat it."""
        self._counts: dict[str, int] = {}
        self._counted_output = False
        self._size = 0
        """Characters of the complete reply."""
        self._begun = False
        self._typeless = False
        """Whether an event had no type: those of the Messages API have one."""
        self.started = False
        self._id = ""
        self._cache_miss: str | None = None
        self._refusal = ""
        self.stop_reason = ""
        self.done = False
        self.failure: Failure | None = None

    def feed(self, events: Iterable[dict[str, Any]]) -> list[Part]:
        """Returns ReplyStarted, once, and the events' deltas, adjacent ones of a kind joined.

        Sets ``failure`` for an ``error`` event or one that is inconsistent; events before it are returned and counted.
        """
        deltas: list[tuple[type[TextPart] | type[ThinkingPart], list[str]]] = []
        try:
            for event in events:
                kind, text = self._apply(event)
                if kind is None or not text:
                    continue
                if deltas and deltas[-1][0] is kind:
                    deltas[-1][1].append(text)
                else:
                    deltas.append((kind, [text]))
        except Failure as failure:
            self.failure = failure
        started: list[Part] = []
        if self._begun and not self.started:
            self.started = True
            started.append(ReplyStarted(self.usage))
        return started + [kind("".join(texts)) for kind, texts in deltas]

    @property
    def usage(self) -> Usage:
        """The tokens and cost of this try as far as they are known; estimates where the endpoint left them out."""
        counts = self._counts | self._estimates
        written = counts.get("cache_creation_input_tokens", 0)
        usage = Usage(
            input_tokens=counts.get("input_tokens", 0),
            output_tokens=counts.get("output_tokens", 0),
            cache_read_tokens=counts.get("cache_read_input_tokens", 0),
            cache_write_tokens=written,
            cache_write_1h_tokens=min(written, counts.get("ephemeral_1h_input_tokens", 0)),
        )
        return priced(usage, self._price) if self._begun else usage

    @property
    def _estimates(self) -> dict[str, int]:
        """The counts that are missing: a prompt has tokens, and what a message's start counts is only their first."""
        found: dict[str, int] = {}
        if self._begun and not any(map(self._counts.get, PROMPT_COUNTS)):
            found["input_tokens"] = self._prompt_tokens
        if self._size and not self._counted_output:
            found["output_tokens"] = self._size // BYTES_PER_TOKEN
        return found

    def finish(self) -> Reply:
        """Returns the complete reply. Call it once ``done`` is true or ``stop_reason`` is set."""
        content: list[dict[str, Any]] = []
        calls: list[Call] = []
        thoughts: list[str] = []
        for block in self._without_repetition():
            finished, call = _finish_block(block, cut=is_cut(self.stop_reason))
            kind = finished.get("type")
            if call and call.id and call in calls:
                continue  # sent twice: one that is meant twice has ids of its own
            if kind == "text" and not content and (tagged := TAGGED_THINKING.match(finished["text"])):
                thoughts.append(tagged[2])
                finished["text"] = finished["text"][tagged.end() :]
            if kind == "thinking":
                thoughts.append(finished["thinking"])
            # The API sends blank texts but rejects them in a request, as it does thinking without a signature.
            blank = kind == "text" and not finished["text"].strip()
            if not (blank or (kind == "thinking" and block.misplaced and not finished.get("signature"))):
                content.append(finished)
            calls += [call] if call else []
        if (content or thoughts) and not self._counted_output:
            self._size = len(str(content)) + sum(map(len, thoughts))
        return Reply(
            content=content,
            stop_reason=self.stop_reason,
            usage=self.usage,
            text="".join(block["text"] for block in content if block.get("type") == "text"),
            thinking="".join(thoughts),
            calls=calls,
            id=self._id,
            cache_miss=self._cache_miss,
            refusal=self._refusal,
            estimated=bool(self._estimates),
        )

    def _without_repetition(self) -> list[_Block]:
        """Returns the blocks, without those before the message was started again if it began with the same words."""
        before, after = self._blocks[: self._restarted], self._blocks[self._restarted :]
        pairs = zip(before, after, strict=False)
        return after if len(before) <= len(after) and all(new.repeats(old) for old, new in pairs) else self._blocks

    def _apply(self, event: dict[str, Any]) -> _Delta:
        match event.get("type"):
            case "content_block_delta":
                return self._apply_delta(event)
            case "content_block_start":
                return self._start_block(event)
            case "message_start":
                self._start(event.get("message") or {})
            case "message_delta":
                self._count(event)
                self.stop_reason = _text_at(event, "delta", "stop_reason") or self.stop_reason
                details = (_text_at(event, "delta", "stop_details", key) for key in ("category", "explanation"))
                self._refusal = ": ".join(clip(each, MAX_DETAIL) for each in details if each) or self._refusal
            case "content_block_stop":
                self._under_way.discard(event.get("index", -1))
            case "message_stop":
                if not (self._begun or self.stop_reason):
                    raise BrokenStream("it ends without a message")
                self.done = True
            case kind if kind == "error" or (kind is None and event.get("error")):
                raise classify_error(event, "inside the stream", unknown_passes=True)
            case kind if not self._begun and (api := _other_api(kind, event)):
                raise self._of_other_api(api)
            case kind:  # ping, and events of later API versions
                self._typeless |= kind is None
        return None, ""

    def end(self) -> None:
        """Raises ``failure``, and Failure where no event of a stream that has ended can be one of the Messages API."""
        if self.failure:
            raise self.failure
        if self._typeless and not (self._begun or self.stop_reason):
            raise self._of_other_api("another API")

    def _of_other_api(self, name: str) -> Failure:
        return Failure(
            f"the endpoint streams {name} instead of the Messages API. Check {self._setting}: it must be the address "
            "of an endpoint, or of a gateway's path, for the Messages API (…/v1/messages)",
            retryable=False,
        )

    def _start_block(self, event: dict[str, Any]) -> _Delta:
        start, index = event.get("content_block") or {}, event.get("index", len(self._blocks))
        self._open = {key: block for key, block in self._open.items() if key[0] != index}
        self._open[index, None] = _Block(start)
        self._under_way.add(index)
        self._blocks.append(self._open[index, None])
        self._begun = True
        key = str(start.get("type"))
        return PARTS.get(key), start.get(key) or ""

    def _receiver(self, index: int, delta_type: str) -> _Block:
        """Returns the block of a delta; those of another type, as gateways send them, have a block of their own."""
        block = self._open.get((index, None))
        if block is None:
            raise BrokenStream(f"a delta for block {index}, which was never started")
        own = block.start.get("type")
        type = BLOCK_TYPES.get(delta_type, own)
        if type == own or own not in ("text", "thinking", "tool_use"):
            return block
        if (index, type) not in self._open:
            self._open[index, type] = _Block({"type": type}, misplaced=True)
            self._blocks.append(self._open[index, type])
        return self._open[index, type]

    def _apply_delta(self, event: dict[str, Any]) -> _Delta:
        delta: dict[str, Any] = event.get("delta") or {}
        kind = delta.get("type", "")
        block = self._receiver(event.get("index", -1), kind)
        if key := APPENDED_DELTAS.get(kind):
            block.pieces.append(text := delta.get(key) or "")
            return PARTS.get(key), text
        if kind == "citations_delta":
            block.start["citations"] = [*(block.start.get("citations") or []), delta.get("citation")]
            return None, ""
        for key, value in delta.items():  # signatures, and deltas of unknown block types
            if key != "type":
                old = block.start.get(key)
                block.start[key] = old + value if isinstance(old, str) and isinstance(value, str) else value
        return None, ""

    def _start(self, message: dict[str, Any]) -> None:
        id = _text_at(message, "id") or ""
        if self._under_way and id and self._id and id != self._id:
            self._blocks.clear()  # a gateway has lost the reply, and goes on with another one from its begin
        self._under_way.clear()
        self._begun, self._restarted = True, len(self._blocks)
        self._count(message)
        self._counted_output = False  # what a start counts is only the reply's first token
        self._id = id
        self._cache_miss = (_text_at(message, "diagnostics", "cache_miss_reason", "type") or "")[:MAX_REASON] or None

    def _count(self, holder: dict[str, Any]) -> None:
        """Stores the last value of each count: counts are cumulative. Null and a later 0 are ignored."""
        usage: dict[str, Any] = holder.get("usage") or {}
        by_lifetime = usage.get("cache_creation")
        for key, value in (usage | (by_lifetime if isinstance(by_lifetime, dict) else {})).items():
            if isinstance(value, int) and (value or key not in self._counts):
                self._counts[key] = max(value, 0)
        self._counted_output = self._counted_output or bool(usage.get("output_tokens"))


def _other_api(kind: Any, event: Mapping[str, Any]) -> str:
    """Returns the name of the API that an event with this type belongs to, if it is known and not the Messages API."""
    names = (name for mark, name in _OTHER_APIS.items() if mark in event or str(kind or "").startswith(mark))
    return next(names, "")


def _text_at(value: Any, *path: str) -> str | None:
    """Returns the text at a path of keys, or None: endpoints leave such fields out, or send null."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


def _finish_block(block: _Block, *, cut: bool) -> tuple[dict[str, Any], Call | None]:
    """Returns the block as it is sent back to the API, and its call if it is one."""
    match block.start.get("type"):
        case "text" | "thinking" as key:
            return {**block.start, key: block.joined(key)}, None
        case "tool_use":
            arguments, problem = _parse_arguments(block)
            if cut:
                problem = CUT_CALL
            name = str(block.start.get("name") or "")
            content = {**block.start, "name": name, "input": arguments}
            call = Call(id=str(block.start.get("id") or ""), name=name, arguments=arguments, problem=problem)
            return content, call
        case _:
            return ({**block.start, "input": _parse_arguments(block)[0]} if block.pieces else block.start), None


def _parse_arguments(block: _Block) -> tuple[dict[str, Any], str | None]:
    text = "".join(block.pieces)
    try:
        arguments = loads(text) if text.strip() else check_depth(block.start.get("input") or {})
    except ValueError as error:
        return {}, f"the arguments are not valid JSON ({error}): {text[:200]}"
    if not isinstance(arguments, dict):
        return {}, f"the arguments must be a JSON object, not {text[:200]}"
    return arguments, None
