"""What the real endpoint refuses, as far as a client can get it wrong: each rule gives the message of a 400."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

KNOWN = {
    "model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "cache_control", "thinking",
    "metadata", "stop_sequences", "output_config", "service_tier",
}  # fmt: skip
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def mistake(body: Any) -> str | None:
    """The first thing that is wrong with a request, or None."""
    return next(_mistakes(body), None)


def sign(body: Mapping[str, Any], upto: int, words: str) -> str:
    """The signature of a thinking block in message ``upto``: bound to the words and to all that came before."""
    before = [body.get("system"), body.get("tools"), body["messages"][:upto], words]
    return hashlib.sha256(json.dumps(before, sort_keys=True).encode()).hexdigest()


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


def _tools(body: dict[str, Any]) -> Iterator[str]:
    names = [tool.get("name", "") for tool in body.get("tools", [])]
    if len(set(names)) != len(names):
        yield "tools: Tool names must be unique"
    for tool, name in zip(body.get("tools", []), names, strict=True):
        if not NAME.fullmatch(name):
            yield f"tools: name {name!r} is not allowed"
        if tool.get("input_schema", {}).get("type") != "object":
            yield f"tools.{name}.input_schema.type: Field required"
    choice = body.get("tool_choice", {}).get("type", "auto")
    if choice not in ("auto", "none"):
        yield f"tool_choice: {choice} is not supported by this model"
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
        if any(not isinstance(block.get("input"), dict) for block in blocks if block.get("type") == "tool_use"):
            yield f"messages.{number}: tool_use.input: Input should be a valid dictionary"
    if asked:
        yield f"messages: tool_use ids were found without tool_result blocks: {asked}"


def _signatures(body: dict[str, Any]) -> Iterator[str]:
    for number, message in enumerate(body["messages"]):
        for block in _blocks(message):
            if block.get("type") == "thinking" and block.get("signature") != sign(body, number, block["thinking"]):
                yield f"messages.{number}: thinking block is bound to a different conversation"


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
