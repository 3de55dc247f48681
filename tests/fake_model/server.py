"""The server: HTTP/1.1 over asyncio streams, a journal of what was asked, and counts of what is still open."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import socket
import ssl
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from tests.fake_model import batches, wire
from tests.fake_model.cache import Bill, PromptCache
from tests.fake_model.strict import mistake
from tests.fake_model.turns import Fault, Script, Turn, script_in, text

_MARKS = {
    "cache_control": b'"cache_control"',
    "thinking": b'"thinking"',
    "batches": b"\0",
}
"""What in a request's body shows that it asks for something."""


class ClientGone(Exception):
    """The client hung up while it was being answered."""


@dataclass
class Asked:
    """One request: its headers (lower-case names), its body, how it was answered, and what it was billed for."""

    headers: dict[str, str]
    body: Any
    raw: bytes
    path: str = ""
    number: int = 0
    status: int = 0
    outcome: str = "open"
    usage: dict[str, Any] = field(default_factory=wire.NO_USAGE.copy)

    @property
    def key(self) -> str:
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return bearer or self.headers.get("x-api-key", "")


@dataclass
class FakeModel:
    """``async with FakeModel([Turn([text("hello")])]) as fake: … fake.url …``

    ``turns`` are for every conversation without a script of its own (``script`` and the prompt's ``FAKE:``); the
    last turn is repeated. With a ``cache``, replies are billed by its rules. ``delay`` is the seconds before every
    reply. ``refuses`` says what is wrong with a request's credentials, where these are no plain key. What it ``lacks``
    it refuses. ``below`` is the path before that of the API.
    """

    turns: Sequence[Turn] = (Turn([text("Hello from the fake model.")]),)
    key: str = "sk-fake-key"
    port: int = 0
    tls: ssl.SSLContext | None = None
    max_body: int = 32 * 1024 * 1024
    cache: PromptCache | None = None
    delay: float = 0.0
    refuses: Callable[[Asked], str | None] | None = None
    lacks: Collection[str] = ()
    below: str = ""
    journal: list[Asked] = field(default_factory=list[Asked])
    connections: int = 0
    open: int = 0
    aborted: int = 0

    def __post_init__(self) -> None:
        self.batches = batches.FakeBatches(self._play)
        """What was sent to the Message Batches API."""
        self._scripts: list[Script] = [Script("", self.turns)]
        self._serving: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self.url = ""

    def script(self, contains: str, turns: Sequence[Turn]) -> None:
        """These turns are for conversations whose first user text holds those words. The latest script wins."""
        self._scripts.insert(0, Script(contains, turns))

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that name this endpoint."""
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": self.key}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self.tls, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}{self.below}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in self._serving:
            connection.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.connections += 1
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._serve(reader, writer):
                    pass
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; false when the connection is to be closed."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target = head[0].split(" ")[0], urlsplit(head[0].split(" ")[1])  # through a proxy it is a whole URL
        path = target.path
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        if path.startswith("/fake/"):
            writer.write(_plain(200, self._report()))
            return True
        asked = Asked(headers, _json(raw), raw, path, next(self._numbers))
        self.journal.append(asked)
        self.open += 1
        try:
            if path.startswith(f"{self.below}{batches.PATH}") and "batches" not in self.lacks:
                return self._batched(method, dict(parse_qsl(target.query)), asked, _Stream(reader, writer))
            return await self._answer(path, asked, _Stream(reader, writer))
        except (ClientGone, ConnectionError):
            self.aborted += 1
            asked.outcome = "aborted"
            return False
        finally:
            self.open -= 1

    def _batched(self, method: str, query: Mapping[str, str], asked: Asked, stream: _Stream) -> bool:
        """One request to the Message Batches API and its answer."""
        path = asked.path.removeprefix(self.below)
        if asked.key != self.key:
            return self._plain(asked, stream, 401, wire.error(401, "authentication is required"))
        if method != "POST" or path != batches.PATH:
            status, answer = self.batches.answer(method, path, query, self.url)
            return self._plain(asked, stream, status, answer)
        trouble = self.batches.troubles.pop(0) if self.batches.troubles else None
        if isinstance(trouble, int):
            return self._plain(asked, stream, trouble, wire.error(trouble, f"fault {trouble}"))
        status, answer = (0, None) if trouble == "cut_before" else self.batches.create(asked.body)
        if trouble:
            stream.reset()
            return False
        shown = answer.shown(self.url) if isinstance(answer, batches.FakeBatch) else answer
        return self._plain(asked, stream, status, shown)

    def _play(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a request in a batch, which is billed as any other."""
        conversation = _first_text(body)
        replies = sum(message["role"] == "assistant" for message in body["messages"])
        turn, fault = self._script_of(conversation).next(hashlib.sha256(conversation.encode()).hexdigest(), replies)
        if fault:
            return {"type": "errored", "error": wire.error(fault.status, f"fault {fault.status}", fault.error)}
        raw = json.dumps(body).encode()
        asked = Asked({"x-api-key": self.key}, body, raw, "batch", next(self._numbers), 200, "answered")
        self.journal.append(asked)
        bill = self.cache.look_up(asked.key, body) if self.cache else None
        if body.get("tool_choice", {}).get("type") == "none":
            turn = turn.without_calls()
        usage = bill.usage if bill else {**wire.NO_USAGE, "input_tokens": len(raw) // 4}
        whole = wire.message(turn, body, asked.number, usage, bill.answer if bill else {})
        self._begin(asked, whole, bill)
        return {"type": "succeeded", "message": whole}

    async def _answer(self, path: str, asked: Asked, stream: _Stream) -> bool:
        refusal = self._refusal(path, asked)
        if refusal:
            return self._plain(asked, stream, *refusal)
        conversation = _first_text(asked.body)
        replies = sum(message["role"] == "assistant" for message in asked.body["messages"])
        script = self._script_of(conversation)
        turn, fault = script.next(hashlib.sha256(conversation.encode()).hexdigest(), replies)
        refused = fault is not None and fault.kind == "refuse"
        bill = self.cache.look_up(asked.key, asked.body) if self.cache and not refused else None
        await stream.pause(self.delay + turn.delay)
        if fault and refused:
            said = wire.error(fault.status, f"fault {fault.status}", fault.error)
            return self._plain(asked, stream, fault.status, said, fault.headers)
        if asked.body.get("tool_choice", {}).get("type") == "none":
            turn = turn.without_calls()
        usage = bill.usage if bill else {**wire.NO_USAGE, "input_tokens": len(asked.raw) // 4}
        whole = wire.message(turn, asked.body, asked.number, usage, bill.answer if bill else {})
        if not asked.body.get("stream"):
            self._begin(asked, whole, bill)
            return self._plain(asked, stream, 200, whole)
        asked.status = 200
        stream.begin()
        events = [wire.event(each) for each in turn.raw] or list(wire.events(whole, turn.pieces))
        for sent, event in enumerate(events):
            if fault and sent == min(fault.after, len(events) - 1):
                asked.outcome = fault.kind
                return await stream.fail(fault)
            await stream.send(event)
            if not sent:
                self._begin(asked, whole, bill)
            await stream.pause(turn.pace)
        asked.outcome = "answered"
        stream.end()
        return True

    def _begin(self, asked: Asked, whole: Mapping[str, Any], bill: Bill | None) -> None:
        """The first event is sent: the request is billed, and what it wrote can be read."""
        asked.usage = dict(whole["usage"])
        if self.cache and bill:
            self.cache.begin(bill, whole["id"])

    def _plain(
        self, asked: Asked, stream: _Stream, status: int, body: Any, headers: Mapping[str, str] | None = None
    ) -> bool:
        asked.status, asked.outcome = status, "answered" if status == 200 else "refused"
        stream.writer.write(_plain(status, body, headers or {}))
        return True

    def _refusal(self, path: str, asked: Asked) -> tuple[int, Any] | None:
        if path != f"{self.below}/v1/messages":
            return 404, wire.error(404, f"no such path: {path}")
        if self.refuses and (reason := self.refuses(asked)):
            return 403, wire.error(403, reason)
        if not self.refuses and asked.key != self.key:
            reason = f"invalid bearer token {asked.key!r}" if asked.key else "authentication is required"
            return 401, wire.error(401, reason)
        if len(asked.raw) > self.max_body:
            return 413, wire.error(413, "Request exceeds the maximum size")
        if "anthropic-version" not in asked.headers:
            return 400, wire.error(400, "anthropic-version: header is required")
        if isinstance(asked.body, dict) and "thread" in asked.body:  # the SDK's tool runner repeats it without
            details = {"error_code": "thread_unsupported_request", "unsupported": []}
            return 400, wire.error(400, "thread: this request cannot be continued", {"details": details})
        wrong = next((f"{each} is not supported" for each in self.lacks if _MARKS[each] in asked.raw), None)
        wrong = wrong or mistake(asked.body)
        return (400, wire.error(400, wrong)) if wrong else None

    def _script_of(self, conversation: str) -> Script:
        found = next(script for script in self._scripts if script.contains in conversation)
        if not found.contains and (brought := script_in(conversation)):
            # Kept, so that its faults are counted; it is found by its whole text from now on.
            self.script(conversation, brought.turns)
            return self._scripts[0]
        return found

    def _report(self) -> dict[str, Any]:
        outcomes = [asked.outcome for asked in self.journal]
        return {
            "requests": len(self.journal),
            "open": self.open,
            "aborted": self.aborted,
            "outcomes": outcomes,
            "usage": {kind: sum(asked.usage[kind] for asked in self.journal) for kind in wire.NO_USAGE},
        }


@dataclass
class _Stream:
    """One answer on its way. While it lasts, the client sends nothing; an end of its side means it is gone."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def begin(self) -> None:
        self.writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
            b"request-id: req_fake\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    async def send(self, data: bytes) -> None:
        if self.reader.at_eof():
            raise ClientGone
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    def end(self) -> None:
        self.writer.write(b"0\r\n\r\n")

    async def pause(self, seconds: float) -> None:
        """Waits, but notices at once when the client hangs up."""
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.gone()

    async def gone(self) -> None:
        await self.reader.read(1)
        raise ClientGone

    async def fail(self, fault: Fault) -> bool:
        """Plays the rest of an in-stream fault; true when the connection can be used again."""
        match fault.kind:
            case "overload":
                await self.send(wire.event(wire.error(529, "Overloaded")))
            case "bad_json":
                await self.send(b'event: content_block_delta\ndata: {"type": "content_block_\n\n')
            case "stall":
                await self.gone()
            case "reset":
                self.reset()
                return False
            case _:
                pass
        self.end()
        return True

    def reset(self) -> None:
        """Aborts the connection."""
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def _plain(status: int, body: Any, headers: Mapping[str, str] | None = None) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} -", "content-type: application/json", f"content-length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None


def _first_text(body: Mapping[str, Any]) -> str:
    content = body["messages"][0]["content"]
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")
