"""Any model as one that calls tools in XML: native-shaped prompts go in, native-shaped replies come out.

What the model wrote is kept as it came, because provider signatures bind to the exact prefix: its calls are added to
the message as ``tool_use`` blocks with the key ``in_text``, and left out again when the message is sent.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from shared.ids import new_id
from worker.models.base import Call, Model, Part, Price, Prompt, Reply, Retrying, TextPart, ToolSpec
from worker.models.xml_calls.instruction import format_tool_call, format_tool_result, generate_tool_instruction
from worker.models.xml_calls.parser import ToolCall, XMLToolCallParser

_OPENING = "<tool_call"
_WORDS_ONLY = "No tools are available now: a call would not be carried out. Answer in plain words."


@dataclass(frozen=True, slots=True)
class _Sent:
    """A message as it goes over the wire, and the calls it holds, by their ids."""

    wire: bytes
    calls: Mapping[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])


class XmlCalls:
    """A model whose tool calls travel as text, for one run; it remembers that run's messages as they are sent."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._sent: dict[bytes, _Sent] = {}
        self._instructed: tuple[str, tuple[ToolSpec, ...], str] | None = None

    @property
    def name(self) -> str:
        return self._model.name

    def price(self) -> Price | None:
        """What the model's tokens cost."""
        return self._model.price()

    def window(self) -> int:
        """How many tokens its prompt and its reply may have together."""
        return self._model.window()

    def as_sent(self, prompt: Prompt) -> Prompt:
        """The prompt with tools, calls and results as text: one message for each that was given.

        Asking for words only adds a sentence to the last message and changes nothing before it.
        """
        messages = list(self._messages(prompt.messages))
        if prompt.tools and not prompt.allow_tools and messages:
            messages[-1] = _with_words(messages[-1], _WORDS_ONLY)
        return replace(prompt, system=self._system(prompt), tools=(), messages=messages)

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Part]:
        """The model's reply with the calls of its text. Deltas show the words alone. Raises ``ModelUnavailable``."""
        words = _Words(prompt.tools)
        async with aclosing(self._model.reply(self.as_sent(prompt))) as parts:
            async for part in parts:
                match part:
                    case TextPart(text):
                        if shown := words.feed(text):
                            yield TextPart(shown)
                    case Reply():
                        reply = _understood(part, prompt)
                        if rest := words.rest(reply.text):
                            yield TextPart(rest)
                        yield reply
                    case _:
                        if isinstance(part, Retrying):
                            words = _Words(prompt.tools)
                        yield part

    def _system(self, prompt: Prompt) -> str:
        """The same object each time for the same prompt: adapters know their encoded prefix by identity."""
        known = self._instructed
        if known is None or known[0] is not prompt.system or known[1] is not prompt.tools:
            parts = (prompt.system, generate_tool_instruction(prompt.tools))
            known = self._instructed = (prompt.system, prompt.tools, "\n\n".join(filter(None, parts)))
        return known[2]

    def _messages(self, messages: Sequence[bytes]) -> Iterator[bytes]:
        """Each message is written once, and the same bytes are sent every time."""
        earlier, self._sent = self._sent, {}
        calls: dict[str, dict[str, Any]] = {}
        for message in messages:
            sent = self._sent[message] = earlier.get(message) or _sent(message, calls)
            calls.update(sent.calls)
            yield sent.wire


class _Words:
    """The words among text deltas, as far as it is certain that they are none of a call.

    From the first ``<tool_call`` or tag of a tool's name on everything is held back until the reply is there, and so
    are blanks at its ends.
    """

    def __init__(self, tools: Sequence[ToolSpec] = ()) -> None:
        self._openings = (_OPENING, *(f"<{tool.name}>" for tool in tools))
        self._shown = 0
        self._kept = ""
        self._holding = False

    def feed(self, delta: str) -> str:
        """What can be shown now."""
        if self._holding:
            return ""
        text = self._kept + delta
        begun = [at for opening in self._openings if (at := text.find(opening)) >= 0]
        self._holding = bool(begun)
        shown = text[: min(begun) if begun else _certain(text, self._openings)].rstrip()
        self._kept = text[len(shown) :]
        shown = shown if self._shown else shown.lstrip()
        self._shown += len(shown)
        return shown

    def rest(self, text: str) -> str:
        """What of the finished reply's words was not shown yet."""
        return text[self._shown :]


def _certain(text: str, openings: Sequence[str]) -> int:
    """How much of a text cannot be the beginning of a call."""
    begin = text.rfind("<")
    return begin if begin >= 0 and any(opening.startswith(text[begin:]) for opening in openings) else len(text)


def _understood(reply: Reply, prompt: Prompt) -> Reply:
    """The reply with its calls told apart from its words; without tools there are none in it."""
    if not prompt.tools:
        return replace(reply, text=reply.text.strip())
    said = XMLToolCallParser(prompt.tools).read(reply.text, problems=prompt.allow_tools)
    if not prompt.allow_tools:
        return replace(reply.without_calls(), text=said.words)
    blocks = [_block(call) for call in said.calls]
    return replace(
        reply,
        content=[*reply.content, *blocks],
        stop_reason="tool_use" if blocks and reply.stop_reason == "end_turn" else reply.stop_reason,
        text=said.words,
        calls=[
            *reply.calls,
            *(
                Call(block["id"], call.name, call.params, call.problem)
                for call, block in zip(said.calls, blocks, strict=True)
            ),
        ],
    )


def _block(call: ToolCall) -> dict[str, Any]:
    """The call as the history keeps it; what it was warned of survives a crash there."""
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


def _sent(message: bytes, calls: Mapping[str, dict[str, Any]]) -> _Sent:
    """A message of the history as the model reads it. Words alone are sent as they are."""
    if b'"tool_' not in message:
        return _Sent(message)
    parsed = json.loads(message)
    content: list[dict[str, Any]] = parsed["content"]
    asked = {block["id"]: block for block in content if block["type"] == "tool_use"}
    blocks = [sent for block in content for sent in _as_text(block, calls)]
    return _Sent(_encode(parsed | {"content": blocks}), asked)


def _as_text(block: dict[str, Any], calls: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "tool_use":
            if not block.get("in_text"):
                yield _text(format_tool_call(block["name"], block["input"]))
        case "tool_result":
            call = calls.get(block["tool_use_id"], {})
            content = block.get("content") or ""
            parts = [_text(content)] if isinstance(content, str) else content
            words = "\n".join(part["text"] for part in parts if part["type"] == "text")
            success = not block.get("is_error")
            name, warnings = call.get("name", "unknown"), call.get("warnings", ())
            yield _text(format_tool_result(name, words, success=success, warnings=warnings))
            yield from (part for part in parts if part["type"] != "text")
        case _:
            yield block


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _with_words(message: bytes, words: str) -> bytes:
    parsed = json.loads(message)
    if parsed["role"] != "user":
        return message
    content = parsed["content"]
    blocks = [_text(content)] if isinstance(content, str) else content
    return _encode(parsed | {"content": [*blocks, _text(words)]})


def _encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
