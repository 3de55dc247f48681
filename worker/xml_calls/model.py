"""A wrapper for models without native tool calls: translates prompts and replies to and from calls as XML text.

The model's text is kept verbatim, because provider signatures cover the exact prefix: its calls are added to the
message as ``tool_use`` blocks with the key ``in_text``, which are left out when the message is sent.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from ...shared.ids import new_id
from ..models.base import Call, Model, Part, Price, Prompt, Reply, Retrying, TextPart, ToolSpec
from .instruction import format_tool_call, format_tool_result, generate_tool_instruction
from .parser import ToolCall, XMLToolCallParser

_OPENING = "<tool_call"
_NO_TOOLS = "No tools are available now: a call would not be executed. Answer in plain text."


@dataclass(frozen=True, slots=True)
class _SentMessage:
    """A message as it is sent, and its calls by id."""

    encoded: bytes
    calls: Mapping[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])


class XmlCalls:
    """A model that calls tools in XML text. Belongs to one run, because it caches that run's translated messages."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._sent: dict[bytes, _SentMessage] = {}
        self._system_cache: tuple[str, tuple[ToolSpec, ...], str] | None = None

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def endpoint_id(self) -> str | None:
        return self._model.endpoint_id

    def price(self) -> Price | None:
        """Returns the price of the model's tokens, or None where it is unknown."""
        return self._model.price()

    def window(self) -> int:
        """Returns the context window in tokens, replies included."""
        return self._model.window()

    def translate(self, prompt: Prompt) -> Prompt:
        """Returns the prompt with tools, calls and results as text; the number of messages stays the same.

        ``allow_tools`` false appends a sentence to the last message and changes nothing before it.
        """
        messages = list(self._messages(prompt.messages))
        if prompt.tools and not prompt.allow_tools and messages:
            messages[-1] = _append_text(messages[-1], _NO_TOOLS)
        # A first message that had to change is sent in another form, without the shared block.
        shared_end = prompt.shared_end if messages and messages[0] == prompt.messages[0] else 0
        return replace(prompt, system=self._system(prompt), tools=(), messages=messages, shared_end=shared_end)

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Part]:
        """Yields deltas without the XML of calls, then the reply with its calls. Raises ModelUnavailable."""
        deltas = _DeltaFilter()
        async with aclosing(self._model.reply(self.translate(prompt))) as parts:
            async for part in parts:
                match part:
                    case TextPart(text):
                        if visible := deltas.feed(text):
                            yield TextPart(visible)
                    case Reply():
                        reply = _parse_reply(part, prompt)
                        if rest := deltas.rest(reply.text):
                            yield TextPart(rest)
                        yield reply
                    case _:
                        if isinstance(part, Retrying):
                            deltas = _DeltaFilter()
                        yield part

    def _system(self, prompt: Prompt) -> str:
        """Returns the same object for the same prompt, because models cache the encoded prefix by identity."""
        entry = self._system_cache
        if entry is None or entry[0] is not prompt.system or entry[1] is not prompt.tools:
            parts = (prompt.system, generate_tool_instruction(prompt.tools))
            entry = self._system_cache = (prompt.system, prompt.tools, "\n\n".join(filter(None, parts)))
        return entry[2]

    def _messages(self, messages: Sequence[bytes]) -> Iterator[bytes]:
        """Yields the translated messages; each is translated once, so that the same bytes are sent every time."""
        earlier, self._sent = self._sent, {}
        calls: dict[str, dict[str, Any]] = {}
        for message in messages:
            sent = self._sent[message] = earlier.get(message) or _translate(message, calls)
            calls.update(sent.calls)
            yield sent.encoded


class _DeltaFilter:
    """Passes text deltas on as long as they cannot be part of a call.

    From the first ``<tool_call`` on, everything is withheld until the reply is complete, and so are leading and
    trailing blanks.
    """

    def __init__(self) -> None:
        self._passed = 0
        self._withheld = ""
        self._in_call = False

    def feed(self, delta: str) -> str:
        """Returns the text that can be published now."""
        if self._in_call:
            return ""
        text = self._withheld + delta
        start = text.find(_OPENING)
        self._in_call = start >= 0
        visible = text[: start if self._in_call else _safe_length(text)].rstrip()
        self._withheld = text[len(visible) :]
        visible = visible if self._passed else visible.lstrip()
        self._passed += len(visible)
        return visible

    def rest(self, text: str) -> str:
        """Returns the part of the complete reply's text that was withheld."""
        return text[self._passed :]


def _safe_length(text: str) -> int:
    """Returns the length of the text without an end that may be the beginning of a call."""
    tag = text.rfind("<")
    return tag if tag >= 0 and _OPENING.startswith(text[tag:]) else len(text)


def _parse_reply(reply: Reply, prompt: Prompt) -> Reply:
    """Returns the reply with its calls separated from its text; a prompt without tools has none."""
    if not prompt.tools:
        return replace(reply, text=reply.text.strip())
    parsed = XMLToolCallParser(prompt.tools).parse_reply(reply.text, problems=prompt.allow_tools)
    if not prompt.allow_tools:
        return replace(reply.without_calls(), text=parsed.text)
    blocks = [_block(call) for call in parsed.calls]
    return replace(
        reply,
        content=[*reply.content, *blocks],
        stop_reason="tool_use" if blocks and reply.stop_reason == "end_turn" else reply.stop_reason,
        text=parsed.text,
        calls=[
            *reply.calls,
            *(
                Call(id=block["id"], name=call.name, arguments=call.params, problem=call.problem)
                for call, block in zip(parsed.calls, blocks, strict=True)
            ),
        ],
    )


def _block(call: ToolCall) -> dict[str, Any]:
    """Returns the call as the history stores it, with its warnings, so that they survive a crash."""
    block: dict[str, Any] = {
        "type": "tool_use",
        "id": new_id("toolu"),
        "name": call.name,
        "input": call.params,
        "in_text": True,
    }
    if call.warnings:
        block["warnings"] = [*call.warnings]
    return block


def _translate(message: bytes, calls: Mapping[str, dict[str, Any]]) -> _SentMessage:
    """Returns a message of the history with calls and results as text; others stay the same bytes."""
    if b'"tool_' not in message:
        return _SentMessage(message)
    parsed = json.loads(message)
    content: list[dict[str, Any]] = parsed["content"]
    own_calls = {block["id"]: block for block in content if block["type"] == "tool_use"}
    blocks = [translated for block in content for translated in _to_text(block, calls)]
    return _SentMessage(_encode(parsed | {"content": blocks}), own_calls)


def _to_text(block: dict[str, Any], calls: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "tool_use":
            if not block.get("in_text"):
                yield _text(format_tool_call(block["name"], block["input"]))
        case "tool_result":
            call = calls.get(block["tool_use_id"], {})
            content = block.get("content") or ""
            parts = [_text(content)] if isinstance(content, str) else content
            result = "\n".join(part["text"] for part in parts if part["type"] == "text")
            success = not block.get("is_error")
            name, warnings = call.get("name", "unknown"), call.get("warnings", ())
            yield _text(format_tool_result(name, result, success=success, warnings=warnings))
            yield from (part for part in parts if part["type"] != "text")
        case _:
            yield block


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _append_text(message: bytes, text: str) -> bytes:
    parsed = json.loads(message)
    if parsed["role"] != "user":
        return message
    content = parsed["content"]
    blocks = [_text(content)] if isinstance(content, str) else content
    return _encode(parsed | {"content": [*blocks, _text(text)]})


def _encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
