"""What the real endpoint refuses, as far as a client can get it wrong: each rule returns the message of a 400."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from tests.fake_model.cache import Block, blocks, breakpoints, last_cacheable, time_to_live

MAX_BREAKPOINTS = 4
KNOWN = {
    "model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "cache_control", "thinking",
    "metadata", "stop_sequences", "output_config", "service_tier", "diagnostics",
}  # fmt: skip
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
ID = re.compile(r"[a-zA-Z0-9_-]+")


def mistake(body: Any) -> str | None:
    """The first thing that is wrong with a request, or None."""
    return next(_mistakes(body), None)


def sign(body: Mapping[str, Any], upto: int, words: str) -> str:
    """The signature of a thinking block in message ``upto``: bound to the words and to all that came before."""
    # Without the breakpoints: they move as a conversation grows.
    before = [[block.part, block.role, block.bare] for block in blocks({**body, "messages": body["messages"][:upto]})]
    return hashlib.sha256(json.dumps([before, words], sort_keys=True).encode()).hexdigest()


def _mistakes(body: Any) -> Iterator[str]:
    if not isinstance(body, dict):
        yield "the body must be a JSON object"
        return
    for key in body.keys() - KNOWN:
        yield f"{key}: Extra inputs are not permitted"
    if not isinstance(body.get("model"), str):
        yield "model: Field required"
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield "max_tokens: Field required"
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        yield "messages: at least one message is required"
        return
    yield from _tools(body)
    yield from _messages(body["messages"])
    yield from _pairs(body["messages"])
    yield from _signatures(body)
    yield from _diagnostics(body.get("diagnostics"))
    yield from _controls(body)


def _tools(body: dict[str, Any]) -> Iterator[str]:
    names = [tool.get("name", "") for tool in body.get("tools", [])]
    if len(set(names)) != len(names):
        yield "tools: Tool names must be unique"
    for tool, name in zip(body.get("tools", []), names, strict=True):
        if not NAME.fullmatch(name):
            yield f"tools: name {name!r} is not allowed"
        if tool.get("input_schema", {}).get("type") != "object":
            yield f"tools.{name}.input_schema.type: Field required"
    choice = body.get("tool_choice", {})
    if choice.get("type", "auto") not in ("auto", "none", "tool"):
        yield f"tool_choice: {choice['type']} is not supported by this model"
    if choice.get("type") == "tool":
        if choice.get("name") not in names:
            yield f"tool_choice: tool {choice.get('name')!r} not found in provided tools"
        if body.get("thinking", {}).get("type") != "disabled":  # left out, the models of today think
            yield "Thinking may not be enabled when tool_choice forces tool use."
    if "tool_choice" in body and not names:
        yield "tool_choice may only be specified while providing tools"


def _messages(messages: list[dict[str, Any]]) -> Iterator[str]:
    if messages[0].get("role") != "user":
        yield "messages: first message must use the user role"
    if messages[-1].get("role") == "assistant":
        yield "messages: prefilling assistant messages is not supported"
    for number, message in enumerate(messages):
        if message.get("role") not in ("user", "assistant", "system"):
            yield f"messages.{number}.role: Input should be 'user' or 'assistant'"
        if not message.get("content"):
            yield f"messages.{number}: content must not be empty"
        for block in _blocks(message):
            if block.get("type") == "text" and not block.get("text", "").strip():
                yield f"messages.{number}: text content blocks must be non-empty"


def _pairs(messages: list[dict[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    asked: list[str] = []
    for number, message in enumerate(messages):
        blocks = _blocks(message)
        answered = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
        for missing in (one for one in asked if one not in answered):
            yield f"messages.{number}: tool_use ids without tool_result blocks immediately after: {missing}"
        for extra in (one for one in answered if one not in asked):
            yield f"messages.{number}: unexpected tool_use_id found in tool_result blocks: {extra}"
        if answered and blocks[0].get("type") != "tool_result":
            yield f"messages.{number}: tool_result blocks must come first"
        asked = [block.get("id", "") for block in blocks if block.get("type") == "tool_use"]
        if seen & set(asked) or len(set(asked)) != len(asked):
            yield f"messages.{number}: tool_use ids must be unique"
        seen |= set(asked)
        for block in (block for block in blocks if block.get("type") == "tool_use"):
            if not NAME.fullmatch(block.get("name", "")):
                yield f"messages.{number}: tool_use.name {block.get('name')!r} is not allowed"
            if not ID.fullmatch(block.get("id", "")):
                yield f"messages.{number}: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        if any(not isinstance(block.get("input"), dict) for block in blocks if block.get("type") == "tool_use"):
            yield f"messages.{number}: tool_use.input: Input should be a valid dictionary"
    if asked:
        yield f"messages: tool_use ids were found without tool_result blocks: {asked}"


def _signatures(body: dict[str, Any]) -> Iterator[str]:
    for number, message in enumerate(body["messages"]):
        for block in _blocks(message):
            if block.get("type") == "thinking" and block.get("signature") != sign(body, number, block["thinking"]):
                yield f"messages.{number}: thinking block is bound to a different conversation"


def _diagnostics(asked: Any) -> Iterator[str]:
    if asked is None:
        return
    if not isinstance(asked, dict) or asked.keys() - {"previous_message_id"}:
        yield "diagnostics: Input should be an object with previous_message_id"
    elif not isinstance(asked.get("previous_message_id"), str | None):
        yield "diagnostics.previous_message_id: Input should be a valid string"


def _controls(body: dict[str, Any]) -> Iterator[str]:
    listed = blocks(body)
    for block in listed:
        yield from _control(f"{block.path}.cache_control", block.control)
        if block.control and block.is_thought:
            yield f"{block.path}.cache_control: thinking blocks cannot have cache_control"
        if block.control and block.is_empty:
            yield f"{block.path}: cache_control cannot be set for empty text blocks"
    yield from _control("cache_control", body.get("cache_control"))
    yield from _automatic(body.get("cache_control"), listed)
    ttls = list(breakpoints(body, listed).values())
    if len(ttls) > MAX_BREAKPOINTS:
        yield f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {len(ttls)}."
    if ("5m", "1h") in pairwise(ttls):
        yield "cache_control: a ttl='1h' block must not come after a ttl='5m' block (order: tools, system, messages)"


def _control(path: str, control: Any) -> Iterator[str]:
    if control is None:
        return
    if not isinstance(control, dict) or control.get("type") != "ephemeral":
        yield f"{path}.type: Input should be 'ephemeral'"
        return
    if control.get("ttl") not in (None, "5m", "1h"):
        yield f"{path}.ttl: Input should be '5m' or '1h'"
    for key in control.keys() - {"type", "ttl"}:
        yield f"{path}.{key}: Extra inputs are not permitted"


def _automatic(control: Any, listed: list[Block]) -> Iterator[str]:
    last = last_cacheable(listed)
    own = None if last is None else listed[last].control
    if control and own and time_to_live(own) != time_to_live(control):
        yield "cache_control: the last cacheable block has a cache_control with a different ttl"


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
