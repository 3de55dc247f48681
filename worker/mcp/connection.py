"""The connection to one server for one run: connects, calls, reconnects after a failure, and closes with the run."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, nullcontext
from typing import Any, cast

import mcp_types as types
from mcp import Client, MCPError
from pydantic import TypeAdapter, ValidationError

from ...shared.errors import ErrorType, ToolError
from ...shared.log import log
from ..sandbox.buffers import BoundedBuffer
from .answers import Usable
from .config import Server
from .streams import BROKEN, NOT_SENT
from .transport import RunScope, Transport, opened

MAX_TOOLS = 500
"""Per server; models choose badly from more."""
_CLOSE_SECONDS = 3.0
_PATIENCE = 15.0
_MAX_STDERR = 2000
"""Bytes of a server's stderr that are kept for error messages."""
_OF_THE_SANDBOX = (
    ". It runs in the sandbox, without network, where it finds system programs and its own installation; in mcp.json "
    '"show" names further paths, and "sandbox": false runs it outside'
)
_US = types.Implementation(name="deputize", version="0.1.0")
_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_TYPES: Mapping[int, ErrorType] = {
    types.INVALID_PARAMS: ErrorType.INVALID_TOOL_PARAMS,
    types.REQUEST_TIMEOUT: ErrorType.TIMEOUT,
}

logging.getLogger("client").setLevel(logging.CRITICAL)
"""The SDK's logger. It writes a traceback for each invalid message, with which a server could flood the log and block
the event loop."""

Progress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Progress of a call: done, total, and the server's message."""


class ServerUnavailable(Exception):
    """The server cannot be used. The message contains the reason and a remedy."""


class Connection:
    """A connection to one server. Calls may come from any task.

    The SDK's client must be entered and left by one task, so each connection has its own.
    """

    def __init__(self, server: Server, caller: RunScope, connect_seconds: float) -> None:
        self.server = server
        self._caller = caller
        self.connect_seconds = connect_seconds
        self._lock = asyncio.Lock()
        self._holding: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._line: Transport | None = None
        self._words = BoundedBuffer(_MAX_STDERR)
        self.left_out: list[str] = []
        """Why some of what the server offers cannot be used."""
        self._ended = False

    @property
    def alive(self) -> bool:
        return self._client is not None and self._line is not None and not self._line.over.is_set()

    async def connect(self) -> None:
        """Connects. Raises ``ServerUnavailable``, after everything that was started has been closed."""
        if self._ended:
            raise ServerUnavailable("the run that used it is over")
        words = self._words = BoundedBuffer(_MAX_STDERR)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._holding = holding = asyncio.create_task(self._hold(ready), name=f"mcp {self.server.name}")
        holding.add_done_callback(self._log_failure)
        why: str | None = "it was not waited for"
        try:
            await asyncio.wait([ready, holding], timeout=self.connect_seconds, return_when=asyncio.FIRST_COMPLETED)
            late = f"it did not answer within {self.connect_seconds:g} seconds"
            why = None if ready.done() else _failure(holding) or late
        finally:
            if why is not None:
                await self.close()
        if why is not None:
            inside = self.server.type == "stdio" and self.server.sandbox
            raise ServerUnavailable(f"{why}{_quoted(words)}{_OF_THE_SANDBOX if inside else ''}")

    async def end(self) -> None:
        """Closes permanently: later calls do not reconnect."""
        self._ended = True
        await self.close()

    async def close(self) -> None:
        """Closes the connection. Returns when no process of the server is left, even if cancelled meanwhile."""
        connected = self._client is not None
        holding, self._holding, self._client = self._holding, None, None
        if holding is None:
            return
        if self._line is not None:
            self._line.over.set()
        try:
            await asyncio.wait([holding], timeout=_CLOSE_SECONDS if connected else 0)
        finally:
            if not holding.done():
                holding.cancel()
                await asyncio.wait([holding], timeout=_PATIENCE)

    async def tools(self, seconds: float) -> list[types.Tool]:
        """Returns the server's tools, in its order. Raises ``ServerUnavailable``."""
        found: list[types.Tool] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(seconds):
                while self._client is not None and len(found) < MAX_TOOLS:
                    page = await self._client.list_tools(cursor=cursor)
                    found += page.tools
                    cursor = page.next_cursor
                    if not cursor:
                        break
        except TimeoutError:
            raise ServerUnavailable(f"it did not list its tools within {seconds:.0f} seconds") from None
        except Exception as error:  # noqa: BLE001 - any failure of a server: the run continues without it
            raise ServerUnavailable(f"its tools cannot be listed: {_explained(error)}") from None
        return found[:MAX_TOOLS]

    async def call(
        self, tool: str, arguments: Mapping[str, Any], on_progress: Progress, *, repeatable: bool
    ) -> types.CallToolResult:
        """Returns the server's result of one call. Cancelling cancels it at the server, too.

        After a connection failure it reconnects once, and repeats the call only if it is ``repeatable`` or the server
        cannot have received it. Raises ``ToolError`` that states whether the outcome is known.
        """
        latest = asyncio.get_running_loop().time() + (self.server.call_seconds or math.inf)
        for last in (False, True):
            client = await self._connected()
            line, words = self._line, self._words
            try:
                return await self._ask(client, tool, arguments, on_progress, latest)
            except MCPError as error:
                unseen = error.code == NOT_SENT or error.message == "Session terminated"
                if not (unseen or self._lost(error)):
                    raise self._error(_TYPES.get(error.code, ErrorType.EXECUTION_FAILED), error.message) from None
                if unseen:
                    self._client = None
                if last or not (unseen or repeatable):
                    ended = line.why() if line and error.code == types.CONNECTION_CLOSED else ""
                    why = f"{error.message}: {ended}{_quoted(words)}" if ended else error.message
                    raise self._doubt(why, seen=not unseen) from None
            except (ValidationError, RuntimeError) as error:
                raise self._doubt(_explained(error)) from None
        raise AssertionError("the second try returns or raises")

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        """Connects, and closes the connection when it is not needed or has failed. Raises what ended it."""
        async with AsyncExitStack() as stack:
            self._line = line = await stack.enter_async_context(opened(self.server, self._caller, self._words))
            stack.callback(line.over.set)
            reading, writing = line.streams
            streams = Usable(reading, self.left_out), writing
            client = Client(nullcontext(cast(Any, streams)), client_info=_US, cache=None)
            self._client = await stack.enter_async_context(client)
            ready.set_result(None)
            await line.over.wait()

    def _log_failure(self, holding: asyncio.Task[None]) -> None:
        if failure := _failure(holding):
            log.info("the connection to the MCP server %s ended: %s", self.server.name, failure)

    async def _connected(self) -> Client:
        async with self._lock:
            if not self.alive:
                await self.close()
                try:
                    await self.connect()
                except ServerUnavailable as error:
                    raise self._error(ErrorType.EXECUTION_FAILED, f"cannot be reached: {error}") from None
            if self._client is None:
                raise self._error(ErrorType.EXECUTION_FAILED, "the connection ended at once")
            return self._client

    async def _ask(
        self, client: Client, tool: str, arguments: Mapping[str, Any], on_progress: Progress, latest: float
    ) -> types.CallToolResult:
        # Not the client's own call_tool: it would validate a result of any size against the server's schema in this
        # thread.
        loop, quiet = asyncio.get_running_loop(), self.server.idle_seconds
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=dict(arguments)))
        bound = asyncio.timeout_at(min(loop.time() + quiet, latest))
        waiting = True

        async def extended(progress: float, total: float | None, message: str | None) -> None:
            if waiting and not bound.expired():
                bound.reschedule(min(loop.time() + quiet, latest))
                await on_progress(progress, total, message)

        try:
            async with bound:
                answer = await client.session.send_request(request, _ANSWER, progress_callback=extended)
        except TimeoutError:
            reason = f"it sent nothing for {quiet:g} seconds"
            if loop.time() >= latest:
                reason = f"it took more than {self.server.call_seconds:g} seconds"
            raise self._doubt(f"{reason} and the call was cancelled", type=ErrorType.TIMEOUT) from None
        finally:
            waiting = False
        if isinstance(answer, types.InputRequiredResult):
            raise self._error(ErrorType.EXECUTION_FAILED, "it requests input from a user, which is not supported here")
        return answer

    def _lost(self, error: MCPError) -> bool:
        """Whether the connection failed, as opposed to an error response of the server with the same code."""
        if error.code == types.CONNECTION_CLOSED:
            return self.server.type != "stdio" or not self.alive
        return error.code in (BROKEN, types.PARSE_ERROR)

    def _error(self, type: ErrorType, why: str) -> ToolError:
        return ToolError(type, f"the MCP server {self.server.name!r}: {why}")

    def _doubt(self, why: str, *, seen: bool = True, type: ErrorType = ErrorType.EXECUTION_FAILED) -> ToolError:
        if not seen:
            return self._error(type, f"the call did not reach it: {why}. Do without it, or try again later.")
        advice = "It may have done it, wholly or in part: look before you repeat it"
        return self._error(type, f"outcome unknown: {why}. {advice}.")


def _failure(task: asyncio.Task[None]) -> str | None:
    """Returns what the task raised as a short message; None if it raised nothing, or not yet."""
    if not task.done() or (not task.cancelled() and task.exception() is None):
        return None
    return "it was cancelled" if task.cancelled() else _explained(task.exception())


def _explained(error: BaseException | None) -> str:
    """Returns a short message for the innermost error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"the protocol does not allow its answer ({'.'.join(map(str, first['loc']))}: {first['msg']})"
    return str(error)[:500] or type(error).__name__


def _quoted(words: BoundedBuffer) -> str:
    text = " ".join(words.data.decode("utf-8", "replace").split())
    return f"; its stderr: {text}" if text else ""
