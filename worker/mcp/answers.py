"""What can be used of a server's messages: one wrong thing in a message costs no more than that thing.

What is not valid Unicode is replaced, a tool or a content that the protocol does not allow is left out, and an answer
that cannot be read at all becomes an error of its call, which would wait for it otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from anyio.abc import ObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from mcp_types.methods import validate_server_result
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from ...shared.text import clip, valid_json_unicode

MAX_MESSAGE = 8 * 1024 * 1024
"""Bytes of one message, such as an image in base64; parsing a longer one would block the event loop."""
MAX_NOTIFICATION = 64 * 1024
"""Bytes of a notification: what is read takes many times its size, and nothing needs a long one."""
TOO_LONG = f"it sent more than {MAX_MESSAGE} bytes in one message"
_STRICTEST = "2025-11-25"
"""The revision of the protocol by which tools and contents are checked one by one."""
_HEAD = re.compile(
    rb"""\s*\{\s*(?P<names>(?:"(?:jsonrpc|id)"\s*:\s*(?:"[^"\\]{0,100}"|\d{1,15}(?:\.0)?)\s*,?\s*)*)(?:"(?P<next>\w+)"|\})"""
)
_ID = re.compile(rb'"id"\s*:\s*("[^"\\]{1,100}"|\d{1,15})')
_TAIL = re.compile(rb'"id"\s*:\s*("[^"\\]{1,100}"|\d{1,15})(?:\.0)?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_NOTIFICATION = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"\s*:\s*"notifications/')
_LOOKED_AT = 1000
_MAX_LEFT_OUT = 500


def read(data: bytes) -> JSONRPCMessage | None:
    """Returns the message; an error in place of an answer that cannot be read; None for anything else."""
    why = ""
    for text in (data, valid_json_unicode(data)):
        try:
            return jsonrpc_message_adapter.validate_json(text, by_name=False)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            why = first["msg"] if first["type"] == "json_invalid" else "it is not a response of JSON-RPC 2.0"
    return unreadable(data, why)


def unreadable(data: bytes, why: str) -> JSONRPCError | None:
    """Returns the error for the call that a message answers which cannot be read; None if that cannot be seen."""
    begins = _HEAD.match(data[:_LOOKED_AT])
    if begins is None or begins["next"] not in (b"result", b"error", None):
        return None
    found = _ID.search(begins["names"]) or _TAIL.search(data[-_LOOKED_AT:])
    if found is None:
        return None
    detail = ErrorData(code=PARSE_ERROR, message=f"its answer cannot be read: {why}")
    return JSONRPCError(jsonrpc="2.0", id=json.loads(found[1]), error=detail)


def readable(data: bytes) -> bytes | None:
    """Returns a message of a stream that the SDK reads, so that it can; None for a notification that it cannot read."""
    mended = valid_json_unicode(data)
    message = read(mended)
    # One that only lacks its end may go on in the next line.
    if isinstance(message, JSONRPCError) and "EOF while parsing" not in message.error.message:
        return message.model_dump_json(by_alias=True).encode()
    return None if message is None and _NOTIFICATION.match(data) else mended


def is_excessive(data: bytes) -> bool:
    """Returns whether this is a notification that is so long that it is left out unread."""
    return len(data) > MAX_NOTIFICATION and _NOTIFICATION.match(data) is not None


class Lines:
    """Splits bytes into lines. Of a line that is longer than ``longest`` only the beginning is returned."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest: list[bytes] = []
        self._size = 0
        self._skips = False
        """Whether the rest of a line that was too long comes."""

    def feed(self, part: bytes) -> list[bytes]:
        """Returns the lines that are complete, and the one that has become too long."""
        lines: list[bytes] = []
        first, *others = part.split(b"\n")
        self._rest.append(first)
        self._size += len(first)
        if others:
            *whole, rest = others
            lines = whole if self._skips else [b"".join(self._rest), *whole]
            self._rest, self._size, self._skips = [rest], len(rest), False
        if self._size > self._longest:
            lines += [] if self._skips else [b"".join(self._rest)]
            self._rest, self._size, self._skips = [], 0, True
        return lines


class EventLines(Lines):
    """The lines of an event stream, so that the messages in them can be read."""

    def readable(self, part: bytes) -> bytes:
        """Returns the lines that are complete, and what of a line is too long to wait for its end."""
        return b"".join(self._readable(line) + b"\n" for line in self.feed(part))

    def _readable(self, line: bytes) -> bytes:
        data = line.removeprefix(b"data:")
        if data == line:
            return line
        if len(data) > self._longest and (error := unreadable(data, TOO_LONG)):
            return b"data: " + error.model_dump_json().encode() + b"\n"
        fit = None if is_excessive(data) else readable(data)
        return b":" if fit is None else b"data:" + fit


class Usable(ObjectReceiveStream[SessionMessage | Exception]):
    """A stream of messages without the tools and contents that are wrong; ``left_out`` gets the first reasons."""

    def __init__(self, incoming: Any, left_out: list[str]) -> None:
        self._incoming = incoming
        self._left_out = left_out

    async def aclose(self) -> None:
        await self._incoming.aclose()

    async def receive(self) -> SessionMessage | Exception:
        item = await self._incoming.receive()
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            result = item.message.result
            if isinstance(result.get("tools"), list):
                result["tools"] = [tool for tool in result["tools"] if self._is_tool(tool)]
            if "content" in result or "structuredContent" in result:
                _mend_contents(result)
        return item

    def _is_tool(self, tool: Any) -> bool:
        """Mends what is not used of a tool. Returns whether it is one."""
        if isinstance(tool, dict):
            tool.pop("outputSchema", None)
            if isinstance(schema := tool.get("inputSchema"), dict):
                schema.setdefault("type", "object")
        why = _refusal("tools/list", {"tools": [tool]})
        if why and len(self._left_out) < _MAX_LEFT_OUT:
            name = str(tool.get("name") if isinstance(tool, dict) else tool)[:100]
            self._left_out.append(f"the tool {name!r} is left out: {why}")
        return not why


def _mend_contents(result: dict[str, Any]) -> None:
    """Puts a text in place of each content that cannot be used."""
    if result.get("content") is None:
        result["content"] = []
    if not isinstance(result["content"], list):
        return
    if (structured := result.pop("structuredContent", None)) is not None:
        written = to_json(structured, inf_nan_mode="null")  # JSON has no other word for these numbers
        if isinstance(structured, dict):
            result["structuredContent"] = from_json(written)
        else:
            result["content"].append({"type": "text", "text": written.decode()})
    for number, content in enumerate(result["content"]):
        if why := _refusal("tools/call", {"content": [content]}):
            kind = clip(str(content.get("type") if isinstance(content, dict) else content), 100)
            result["content"][number] = {"type": "text", "text": f"[content of the type {kind!r} is left out: {why}]"}


def _refusal(method: str, result: Mapping[str, Any]) -> str:
    try:
        validate_server_result(method, _STRICTEST, result)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"][2:]))
        return f"it is not what the protocol allows ({place}: {first['msg']})"
    return ""
