"""The tools of MCP servers: their calls and their results."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import mimetypes
import re
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ...shared.text import clip, did_you_mean
from ..contracts import FileAccess
from ..text.output import MAX_ERROR_CHARS
from ..threads import run_in_thread
from ..toolkit.sources import SchemaTool, ToolSourceContext
from ..tools.base import Effect, Kind, Origin, ToolResult
from ..tools.context import ToolContext
from ..workspace.file_entries import PRIVATE_DIR
from .config import Server, exposed, matches, prefix
from .connection import Connection, ServerUnavailable
from .transport import RunScope

FOLDER = f"{PRIVATE_DIR}/mcp"
MAX_FILES = 50
"""Per result."""
MAX_DESCRIPTION = 4000
_MAX_UNMATCHED = 10
PROGRESS_SECONDS = 0.1
"""Between two progress updates of one call; a server may report each byte."""


async def result_of(answer: types.CallToolResult, ctx: ToolContext, title: str) -> ToolResult:
    """Converts a server's result. An error result becomes a failure with the server's message."""
    text = await run_in_thread(_ResultWriter(ctx.files, ctx.call_id).of, answer)
    if not answer.is_error:
        return ToolResult(text, title, data=answer.structured_content)
    error, content = text or "the server reported a failure without a reason", ""
    if len(text) > MAX_ERROR_CHARS:
        error, content = clip(text, MAX_ERROR_CHARS // 4), text
    return ToolResult(
        content, title, data=answer.structured_content, error=error, error_type=ErrorType.EXECUTION_FAILED
    )


@dataclass(slots=True)
class _ResultWriter:
    """Converts the content blocks of one result to text and saved files."""

    files: FileAccess
    call_id: str
    saved: list[str] = field(default_factory=list[str])

    def of(self, answer: types.CallToolResult) -> str:
        text = "\n".join(part for part in map(self._block, answer.content) if part)
        if not text and answer.structured_content is not None:
            return json.dumps(answer.structured_content, ensure_ascii=False)
        return text

    def _block(self, block: types.ContentBlock) -> str:
        match block:
            case types.TextContent():
                return block.text
            case types.ImageContent() | types.AudioContent():
                return self._file(block.type, block.data, block.mime_type)
            case types.ResourceLink():
                about = ", ".join(str(each) for each in (block.mime_type, block.description) if each)
                return f"[resource {block.name}: {block.uri}{f' ({about})' if about else ''}]"
            case types.EmbeddedResource():
                inner = block.resource
                if isinstance(inner, types.TextResourceContents):
                    return f"[resource {inner.uri}]\n{inner.text}"
                return self._file(f"resource {inner.uri}", inner.blob, inner.mime_type or "")

    def _file(self, what: str, encoded: str, mime_type: str) -> str:
        """Saves binary content to a file and returns a reference to it for the conversation."""
        named = f"{what} {mime_type}".strip()
        if len(self.saved) >= MAX_FILES:
            return f"[{named}: left out, the result has more than {MAX_FILES} files]"
        try:
            data = base64.b64decode("".join(encoded.split()), validate=True)
        except (binascii.Error, ValueError):
            return f"[{named}: left out, it is not valid base64]"
        call = re.sub(r"[^A-Za-z0-9_-]", "_", self.call_id)[:80] or "call"
        path = f"{FOLDER}/{call}-{len(self.saved) + 1}{mimetypes.guess_extension(mime_type) or '.bin'}"
        try:
            self.files.write(f"{PRIVATE_DIR}/.gitignore", b"*\n")
            self.files.write(path, data)
        except ToolError as error:
            return f"[{named}, {len(data)} bytes: not saved, {error.message}]"
        self.saved.append(path)
        return f"[{named}, {len(data)} bytes, saved as {path}]"


class McpTool(SchemaTool):
    """One tool of one server. Raises ``Misconfigured`` for an invalid declaration."""

    def __init__(self, link: Connection, spec: types.Tool, name: str) -> None:
        hints = spec.annotations or types.ToolAnnotations()
        effect = (
            Effect.PURE if hints.read_only_hint else Effect.IDEMPOTENT if hints.idempotent_hint else Effect.EFFECTFUL
        )
        kind = Kind.READ if hints.read_only_hint else Kind.OTHER
        words = clip(spec.description or spec.title or spec.name, MAX_DESCRIPTION)
        super().__init__(name, words, spec.input_schema, kind=kind, effect=effect)
        self.origin = Origin("mcp", link.server.name, spec.name)
        self._called = spec.name
        self.trusted = link.server.trusts(spec.name)
        self._link = link
        self._title = clip(f"{link.server.name}: {spec.title or hints.title or spec.name}", 120)

    def title(self, params: Any) -> str:
        return self._title

    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        last = -PROGRESS_SECONDS

        async def report(progress: float, total: float | None, message: str | None) -> None:
            nonlocal last
            if time.monotonic() - last >= PROGRESS_SECONDS:
                last = time.monotonic()
                text = {"message": clip(message, 500)} if message else {}
                ctx.metadata(progress=progress, **({} if total is None else {"total": total}), **text)

        answer = await self._link.call(
            self._called, params, report, repeatable=self.effect in (Effect.PURE, Effect.IDEMPOTENT)
        )
        return await result_of(answer, ctx, self._title)


def tools_of(link: Connection, listed: Iterable[types.Tool], taken: set[str]) -> tuple[list[McpTool], list[str]]:
    """Returns the allowed and valid tools, and the problems of the others. Adds their names to ``taken``."""
    tools: dict[str, McpTool] = {}
    listed = [*listed]
    problems = [f"the MCP server {link.server.name!r}: {each}" for each in _unmatched(link.server, listed)]
    for spec in listed:
        if not link.server.tools.lets(spec.name):
            continue
        try:
            if spec.name in tools:
                raise Misconfigured("the server names it twice")
            name = exposed(link.server.name, spec.name, taken)
            tools[spec.name] = tool = McpTool(link, spec, name)
            taken.add(tool.name)
        except Misconfigured as error:
            problems.append(f"the tool {spec.name[:100]!r} of the MCP server {link.server.name!r} is left out: {error}")
    return list(tools.values()), problems


def _unmatched(server: Server, listed: Sequence[types.Tool]) -> list[str]:
    """Returns messages for patterns that match no tool: a misspelt filter selects the wrong tools."""
    names = [spec.name for spec in listed]
    trust = server.trust if isinstance(server.trust, list) else []
    lists = {
        "list of allowed tools": server.tools.allow or [],
        "list of denied tools": server.tools.deny,
        "trust": trust,
    }
    messages: list[str] = []
    for kind, patterns in lists.items():
        for pattern in patterns:
            if not any(matches(name, [pattern]) for name in names):
                near = did_you_mean(pattern[:100], names, 1, show=repr)
                hint = f"; {near}" if near else ""
                messages.append(f"its {kind} names {pattern[:100]!r}, which is none of its tools{hint}")
    return messages[:_MAX_UNMATCHED]


@asynccontextmanager
async def serving(
    servers: Sequence[Server], caller: RunScope, seconds: float, context: ToolSourceContext
) -> AsyncGenerator[Sequence[McpTool]]:
    """Yields the servers' tools, callable until the block ends; all servers are closed afterwards.

    ``seconds`` is the time to wait for all of them together, or the ``connectSeconds`` of a server that has one. The
    failure of a server does not affect the others; ``context`` gets the problems and the names of unavailable servers.
    """
    links = [Connection(server, caller, server.connect_seconds or seconds) for server in servers]
    try:
        async with asyncio.TaskGroup() as side_by_side:
            reaching = [side_by_side.create_task(_reached(link)) for link in links]
        tools, taken = list[McpTool](), set[str]()
        for link, listed in zip(links, (each.result() for each in reaching), strict=True):
            named = f"the MCP server {link.server.name!r}"
            if isinstance(listed, ServerUnavailable):
                context.add_missing(prefix(link.server.name))
                context.warn(f"{named} is left out: {listed}")
                continue
            usable, problems = await run_in_thread(tools_of, link, listed, taken)
            tools += usable
            for problem in [*(f"{named}: {each}" for each in link.left_out), *problems]:
                context.warn(problem)
        yield tools
    finally:
        await asyncio.gather(*(link.end() for link in links))


async def _reached(link: Connection) -> list[types.Tool] | ServerUnavailable:
    begun = time.monotonic()
    try:
        await link.connect()
        return await link.tools(max(link.connect_seconds - (time.monotonic() - begun), 1))
    except ServerUnavailable as error:
        await link.close()
        return error
