"""The dependencies of routes: the service, and request bodies, whose size, JSON and model are checked in this order."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Annotated, Any, TypeVar

from fastapi import Depends
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from ..shared import traceparent
from ..shared.errors import Invalid, Refused, TooLarge
from ..shared.log import bind
from ..shared.wire import explain, unique_keys
from .access_tokens import RequestNote, note_of
from .delegations import Delegations
from .problems import summarize

MAX_VALUES = 20_000
"""Maximum values of one request, in all its lists and tables."""
MAX_BATCH_VALUES = 100_000
SLICE = 10_000
"""Tokens that are scanned before the event loop gets control."""

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|,', re.DOTALL)
M = TypeVar("M", bound=BaseModel)
BYTES_PER_SECOND = 64 * 1024
"""The minimum transfer rate of a large body."""


async def _service(request: Request) -> Delegations:
    service: Delegations = request.app.state.service
    caller = note_of(request.scope).caller
    return service.of(caller.owner, is_confined=caller.is_confined) if caller else service


async def _note(request: Request) -> RequestNote:
    return note_of(request.scope)


async def join_trace(request: Request) -> None:
    """Lets what the request submits, and its log lines, be part of the caller's trace."""
    joined = traceparent.join(request.headers.get(traceparent.HEADER))
    bind(request.path_params.get("id", ""), trace_id=traceparent.trace_id_of(joined))


Service = Annotated[Delegations, Depends(_service)]
"""The service of the application, for the request's caller."""
Note = Annotated[RequestNote, Depends(_note)]
"""The request's note, for routes that add delegations to it, or whose response depends on the caller."""


async def check_shape(body: bytes, most: int) -> None:
    """Raises TooLarge for a document of more than ``most`` values; whether it is valid JSON is checked later."""
    if body.count(b",") < most:  # an upper bound, commas in strings included: most bodies need no scan
        return
    commas = 0
    for number, token in enumerate(_TOKEN.finditer(body)):
        if body[token.start()] == 0x2C:
            commas += 1
            if commas >= most:
                raise TooLarge(f"the body holds more than {most:,} values; send less, or in parts")
        if number % SLICE == 0:
            await asyncio.sleep(0)


class NotJson(Refused):
    """The body is not sent as plain JSON.

    The check also blocks pages of other origins, which need a preflight to send JSON.
    """

    status = 415
    title = "Unsupported media type"


class TooSlow(Refused):
    """The body did not arrive in time: an incomplete one holds a connection and memory."""

    status = 408
    title = "Request timeout"


def body_of(
    model: type[M], cap: int, values: int = MAX_VALUES, *, required: bool = True
) -> Callable[[Request], Awaitable[M]]:
    """Returns a dependency that reads and validates a body of at most ``cap`` bytes and ``values`` values.

    A request without a body, where none is required, is as one with an empty object.
    """

    async def body(request: Request) -> M:
        headers = request.headers
        if not required and "transfer-encoding" not in headers and headers.get("content-length", "0") == "0":
            return model()
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            raise NotJson("send the body as JSON, with the header `Content-Type: application/json`")
        read = await read_body(request, cap)
        await check_shape(read, values)
        return await asyncio.to_thread(parse, model, read)

    return body


def document(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """Returns the OpenAPI part for ``body_of``; ``openapi.complete_document`` adds the schema it refers to."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def one_key(field: str | None, header: str | None) -> str | None:
    """Returns the idempotency key, from the body's field or the header. Raises Invalid where they differ."""
    if field is not None and header is not None and field != header:
        raise Invalid(
            "the Idempotency-Key header and the field idempotencyKey differ; send one of them",
            [{"pointer": "/idempotencyKey", "detail": "differs from the Idempotency-Key header"}],
        )
    return header if field is None else field


async def read_body(request: Request, cap: int) -> bytes:
    """Returns the body. Raises as ``body_chunks``."""
    body = bytearray()
    async with aclosing(body_chunks(request, cap)) as chunks:
        async for chunk in chunks:
            body += chunk
    return bytes(body)


async def body_chunks(request: Request, cap: int) -> AsyncGenerator[bytes]:
    """Yields the body. Raises TooLarge, TooSlow if it does not arrive in time, and NotJson for a compressed one."""
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise NotJson("send the body uncompressed, without the header `Content-Encoding`")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > cap:
        raise _too_large(int(declared), cap)
    size, loop = 0, asyncio.get_running_loop()
    began = loop.time()
    patience: float = request.app.state.settings.body_seconds
    until = began + patience
    async with aclosing(request.stream()) as chunks:
        while True:
            try:
                async with asyncio.timeout_at(until):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                raise TooSlow("the body did not come in time; send it at once") from None
            if chunk is None:
                return
            size += len(chunk)
            if size > cap:
                raise _too_large(size, cap)
            yield chunk
            until = min(loop.time(), began + size / BYTES_PER_SECOND) + patience


def _too_large(size: int, cap: int) -> TooLarge:
    return TooLarge(f"the body has {size:,} bytes or more, at most {cap:,} are allowed; send less, or in parts")


def parse(model: type[M], body: bytes) -> M:
    try:
        found = model.model_validate_json(body)
    except ValidationError as error:
        if error.error_count() == 1 and (first := error.errors(include_url=False)[0])["type"] == "json_invalid":
            raise Refused(f"the body is not valid JSON: {first['msg'].removeprefix('Invalid JSON: ')}") from None
        mistakes = explain(error, model)
        raise Invalid(summarize(mistakes), mistakes) from None
    try:
        # The parser above takes the last of several values.
        json.loads(body, object_pairs_hook=unique_keys, parse_int=str, parse_float=str)
    except ValueError as error:
        raise Refused(f"the body is ambiguous: {error}") from None
    return found
