"""What can be used of a server's messages: one wrong thing in a message costs no more than that thing.

What is not valid Unicode is replaced, a tool or a content that the protocol does not allow is left out, and an answer
that cannot be read at all becomes an error of its call, which would wait for it otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
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
_BEGIN = re.compile(r'(?:\[\s*)?\{\s*"(?:jsonrpc|id|method|result|error|params)"\s*:')
_NAMED = re.compile(r'(?:\[\s*)?\{\s*"jsonrpc"\s*:')
_OPENING = re.compile(r"[\[{\s]*[\[{]\s*")
"""A line of a message over several lines that opens it, and does not show yet that it is one."""
_BLANKS = " \t\r\n\ufeff\0"
_DECODER = json.JSONDecoder(strict=False)
_LOOKED_AT = 1000
_MAX_LEFT_OUT = 500


def messages_in(data: bytes) -> tuple[list[JSONRPCMessage], bytes]:
    """Returns the messages in one or more lines, and the beginning of one whose end has not come yet.

    Blanks, a byte order mark and other words may precede them, several may stand on a line, and they may be a batch.
    An error takes the place of an answer that cannot be read.
    """
    if message := _valid(data):
        return [message], b""
    text, found, at = data.decode("utf-8", "replace"), list[JSONRPCMessage](), 0
    if _OPENING.fullmatch(text.strip(_BLANKS)):
        return [], data
    begins = _BEGIN
    while begin := begins.search(text, at):
        # After other words, or an answer that is broken, only what names the protocol is a message.
        is_first = not text[at : begin.start()].strip(_BLANKS)
        begins, at = _NAMED, begin.end()
        try:
            value, at = _DECODER.raw_decode(text, begin.start())
        except json.JSONDecodeError as error:
            if error.msg.startswith("Unterminated") or error.pos >= len(text.rstrip()):
                return found, text[begin.start() :].encode()
            following = _NAMED.search(text, at)
            broken = text[begin.start() : following.start() if following else len(text)]
            found += filter(None, [unreadable(broken.encode(), error.msg)])
        except (ValueError, RecursionError):
            found += filter(None, [unreadable(text[begin.start() :].encode(), "it has too many levels or digits")])
            break
        else:
            whole = text[begin.start() : at]
            if is_first or _NAMED.match(whole):
                parts = [json.dumps(each) for each in value] if isinstance(value, list) else [whole]
                found += filter(None, [read(part.encode()) for part in parts])
    return found, b""


def read(data: bytes) -> JSONRPCMessage | None:
    """Returns the message; an error in place of an answer that cannot be read; None for anything else."""
    why = ""
    for text in (data, valid_json_unicode(data)):
        try:
            return jsonrpc_message_adapter.validate_json(text, by_name=False)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            why = first["msg"] if first["type"] == "json_invalid" else "it is not a response of JSON-RPC 2.0"
    return _of_other_version(data) or unreadable(data, why)


def _valid(data: bytes) -> JSONRPCMessage | None:
    """Returns the message of a line that is nothing else."""
    with suppress(ValidationError):
        return jsonrpc_message_adapter.validate_json(data, by_name=False)
    return None


def _of_other_version(data: bytes) -> JSONRPCMessage | None:
    """Returns an answer that names another version of JSON-RPC or none, and may have null as its error."""
    with suppress(ValueError, RecursionError):
        value = json.loads(valid_json_unicode(data))
        if isinstance(value, dict) and "method" not in value:
            kept = {key: each for key, each in value.items() if key not in ("result", "error") or each is not None}
            return jsonrpc_message_adapter.validate_python(kept | {"jsonrpc": "2.0"}, by_name=False)
    return None


def unattributed(data: bytes) -> bool:
    """Returns whether this is an answer without the id of its call."""
    return b'"jsonrpc"' in data and (b'"result"' in data or b'"error"' in data) and b'"method"' not in data


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
    if data.lstrip(_BLANKS.encode())[:1] == b"[":
        answers = [each for each in messages_in(mended)[0] if isinstance(each, JSONRPCResponse | JSONRPCError)]
        return answers[0].model_dump_json(by_alias=True, exclude_unset=True).encode() if answers else mended
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

    @property
    def rest(self) -> bytes:
        """The beginning of the line whose end has not come."""
        return b"".join(self._rest)

    def drop_rest(self) -> None:
        self._rest, self._size = [], 0

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
        return f"the protocol does not allow it ({place}: {first['msg']})"
    return ""
