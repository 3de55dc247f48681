"""A turn as it goes over the wire: the events of its stream, or one JSON message."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.fake_model.strict import sign
from tests.fake_model.turns import Turn

ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

NO_USAGE = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
"""What a request is billed for that has no reply."""


def event(data: Mapping[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def error(status: int, message: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    kind = ERRORS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message, **(more or {})}}


def message(
    turn: Turn, request: Mapping[str, Any], number: int, usage: Mapping[str, Any], more: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole reply, its thinking signed. ``usage`` counts the request's tokens, ``more`` are further fields."""
    content = [
        {**block, "signature": sign(request, len(request["messages"]), block["thinking"])}
        if block["type"] == "thinking" and "signature" not in block
        else block
        for block in turn.blocks
    ]
    said = sum(len(json.dumps(block)) for block in content)
    return {
        "id": f"msg_fake_{number}",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": content,
        "stop_reason": turn.stop_reason,
        "stop_sequence": None,
        **({"stop_details": turn.details} if turn.details else {}),
        "usage": {
            **usage,
            "output_tokens": 1 + said // 4,
            **turn.usage,
        },
        **more,
    }


def events(whole: Mapping[str, Any], pieces: int) -> Iterator[bytes]:
    """The stream of a reply; each block's text comes in so many pieces."""
    begun = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    details = {"stop_details": begun.pop("stop_details")} if "stop_details" in begun else {}
    yield event({"type": "message_start", "message": begun})
    yield event({"type": "ping"})
    for index, block in enumerate(whole["content"]):
        start, deltas = _split(block, pieces)
        yield event({"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            yield event({"type": "content_block_delta", "index": index, "delta": delta})
        yield event({"type": "content_block_stop", "index": index})
    yield event(
        {
            "type": "message_delta",
            "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None, **details},
            "usage": {"output_tokens": whole["usage"]["output_tokens"]},
        }
    )
    yield event({"type": "message_stop"})


def _split(block: Mapping[str, Any], pieces: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [
                {"type": "text_delta", "text": part} for part in _parts(block["text"], pieces)
            ]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": part} for part in _parts(block["thinking"], pieces)]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "tool_use" | "server_tool_use":
            raw = block["raw"] if "raw" in block else json.dumps(block["input"])
            start = {key: value for key, value in block.items() if key != "raw"} | {"input": {}}
            return start, [{"type": "input_json_delta", "partial_json": part} for part in ["", *_parts(raw, pieces)]]
        case _:
            return dict(block), []


def _parts(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // pieces))
    return [text[at : at + size] for at in range(0, len(text), size)]
