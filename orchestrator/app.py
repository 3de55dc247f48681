"""The HTTP application: routes, lifespan, and the middleware for every request."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..shared.errors import Refused
from ..shared.fleet import VERSION_HEADER, own_version
from ..shared.ids import new_id
from ..shared.log import log
from ..shared.settings import Settings
from . import problems, web
from .access_tokens import NOTE, RequestNote, Tokens
from .audit_recorder import AuditRecorder
from .auth import check_origin
from .delegations import Delegations
from .mcp.http import METHODS, McpEndpoint
from .openapi import complete_document
from .protocol import SAFE_HEADERS, check_head
from .routes import ROUTERS
from .routes.triggers import MOST_DELIVERIES, MOST_OF_ADDRESS
from .scheduler import scheduling
from .scopes import MCP_PATH
from .sockets import check_binding
from .sse import StreamSlots

OpenService = Callable[[], AbstractAsyncContextManager[Delegations]]


class Api(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = complete_document(super().openapi())
        return self.openapi_schema


def create_app(open_service: OpenService, settings: Settings) -> FastAPI:
    """Returns the application; it opens and closes its own service. Raises Misconfigured."""
    check_binding(settings)

    mcp = McpEndpoint()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with open_service() as service, mcp.lifespan(), scheduling(service, settings):
            app.state.service = service
            app.state.audit = AuditRecorder(app.state.service.record)
            try:
                yield
            finally:
                await app.state.audit.close()

    # No documentation pages: they load their scripts from other hosts.
    app = Api(
        title="deputize",
        version="1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        exception_handlers=problems.HANDLERS,
    )
    app.state.settings = settings
    app.state.tokens = Tokens(settings)
    for name, trigger in settings.triggers.items():
        trigger.secrets(name)
    app.state.slots = StreamSlots(settings.max_streams, settings.max_streams_per_caller)
    app.state.trigger_slots = StreamSlots(MOST_DELIVERIES, MOST_OF_ADDRESS)
    # An application that includes a router builds each of its routes again, with the first request.
    app.router.routes += [route for router in ROUTERS for route in router.routes]
    app.router.routes += [Route(MCP_PATH, mcp, methods=METHODS), *web.routes()]
    app.add_middleware(RequestMiddleware)
    return app


class RequestMiddleware:
    """Middleware: checks the request's origin, adds request id and security headers, reports internal errors as 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        note = RequestNote(scope["method"], request_id)
        scope = {**scope, NOTE: note}
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                # First: no response is sent to a request that could be missing in the log.
                await scope["app"].state.audit.response(scope, message["status"])
                started = True
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"], headers[VERSION_HEADER] = request_id, own_version()
                if note.caller is not None:
                    headers["X-Token-Scopes"] = " ".join(sorted(note.caller.scopes))
                headers.setdefault("Cache-Control", "no-cache" if "etag" in headers else "no-store")
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            try:
                check_head(scope["headers"])
                check_origin(scope["method"], Headers(scope=scope))
            except Refused as refusal:
                await problems.response_to(refusal)(scope, receive, send_with_headers)
                return
            await self._app(_as_get(scope), receive, send_with_headers)
        except ClientDisconnect:
            return  # the client has disconnected
        except Exception:
            where = f"{scope['method']} {scope['path']}"
            log.exception("unexpected error in %s", where, extra={"request_id": request_id})
            if started:
                raise  # the server must break the connection: a partial response must not look complete
            await problems.internal_error_response(request_id)(scope, receive, send_with_headers)


def _as_get(scope: Scope) -> Scope:
    """Returns a HEAD request as GET; the server omits the body. ``head`` makes endless responses stop."""
    return {**scope, "method": "GET", "head": True} if scope["method"] == "HEAD" else scope


def _request_id(scope: Scope) -> str:
    """Returns the caller's request id if it is safe in a log line and a header, else a new one."""
    given = Headers(scope=scope).get("x-request-id", "")
    return given if re.fullmatch(r"[!-~]{1,128}", given) else new_id("req")
