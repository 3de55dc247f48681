"""A wrapper for models without native tool calls: translates prompts and replies to and from calls as XML text.

The model's text is kept verbatim, because provider signatures cover the exact prefix: its calls are added to the
message as ``tool_use`` blocks with the key ``in_text``, which are left out when the message is sent.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...shared.ids import new_id
from ..models.base import Call, Model, Part, Prompt, Reply, Retrying, TextPart, ToolSpec
from .instruction import format_tool_call, format_tool_result, generate_tool_instruction
from .parser import XMLToolCallParser

_OPENING = "<tool_call"
_NO_TOOLS = "No tools are available now: a call would not be executed. Answer in plain text."


_Calls = Mapping[str, dict[str, Any]]
"""Blocks of calls by their ids."""


class XmlCalls:
    """A model that calls tools in XML text. Belongs to one run, because it caches that run's translated messages."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name, self.price, self.window = model.name, model.price, model.window
        self._sent: dict[bytes, tuple[bytes, _Calls]] = {}

    @property
    def endpoint_id(self) -> str | None:
        return self._model.endpoint_id

    def translate(self, prompt: Prompt) -> Prompt:
        """Returns the prompt with tools, calls and results as text; the number of messages stays the same.

        ``allow_tools`` false appends a sentence to the last message and changes nothing before it.
        """
        messages = list(self._messages(prompt.messages))
        if prompt.tools and not prompt.allow_tools and messages:
            last = json.loads(messages[-1])
            if last["role"] == "user":
                blocks = [_text(last["content"])] if isinstance(last["content"], str) else last["content"]
                messages[-1] = _encode(last | {"content": [*blocks, _text(_NO_TOOLS)]})
        # A first message that had to change is sent in another form, without the shared block.
        shared_end = prompt.shared_end if messages and messages[0] == prompt.messages[0] else 0
        system = _with_instruction(prompt.system, prompt.tools)
        return replace(prompt, system=system, tools=(), messages=messages, shared_end=shared_end)

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

    def _messages(self, messages: Sequence[bytes]) -> Iterator[bytes]:
        """Yields the translated messages; each is translated once, so that the same bytes are sent every time."""
        earlier, self._sent = self._sent, {}
        calls: dict[str, dict[str, Any]] = {}
        for message in messages:
            encoded, own_calls = self._sent[message] = earlier.get(message) or _translate(message, calls)
            calls.update(own_calls)
            yield encoded


@lru_cache(maxsize=64)
def _with_instruction(system: str, tools: tuple[ToolSpec, ...]) -> str:
    return "\n\n".join(filter(None, (system, generate_tool_instruction(tools))))


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
        if not self._in_call:
            tag = text.rfind("<")  # the end may be the beginning of a call
            start = tag if tag >= 0 and _OPENING.startswith(text[tag:]) else len(text)
        visible = text[:start].rstrip()
        self._withheld = text[len(visible) :]
        visible = visible if self._passed else visible.lstrip()
        self._passed += len(visible)
        return visible

    def rest(self, text: str) -> str:
        """Returns the part of the complete reply's text that was withheld."""
        return text[self._passed :]


def _parse_reply(reply: Reply, prompt: Prompt) -> Reply:
    """Returns the reply with its calls separated from its text; a prompt without tools has none."""
    if not prompt.tools:
        return replace(reply, text=reply.text.strip())
    parsed = XMLToolCallParser(prompt.tools).parse_reply(reply.text, problems=prompt.allow_tools)
    if not prompt.allow_tools:
        return replace(reply.without_calls(), text=parsed.text)
    blocks: list[dict[str, Any]] = []
    calls = list(reply.calls)
    for call in parsed.calls:
        id = new_id("toolu")
        block = {"type": "tool_use", "id": id, "name": call.name, "input": call.params, "in_text": True}
        # The history stores warnings, so that they survive a crash.
        blocks.append(block | ({"warnings": [*call.warnings]} if call.warnings else {}))
        calls.append(Call(id=id, name=call.name, arguments=call.params, problem=call.problem))
    return replace(
        reply,
        content=[*reply.content, *blocks],
        stop_reason="tool_use" if blocks and reply.stop_reason == "end_turn" else reply.stop_reason,
        text=parsed.text,
        calls=calls,
    )


def _translate(message: bytes, calls: _Calls) -> tuple[bytes, _Calls]:
    """Returns a message of the history with calls and results as text, and its calls; others stay the same bytes."""
    if b'"tool_' not in message:
        return message, {}
    parsed = json.loads(message)
    content: list[dict[str, Any]] = parsed["content"]
    own_calls = {block["id"]: block for block in content if block["type"] == "tool_use"}
    blocks = [translated for block in content for translated in _to_text(block, calls)]
    return _encode(parsed | {"content": blocks}), own_calls


def _to_text(block: dict[str, Any], calls: _Calls) -> Iterator[dict[str, Any]]:
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


def _encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
