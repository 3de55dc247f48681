"""Reading request bodies: never more than the cap, then JSON, then the model, each with its own refusal."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from orchestrator.problems import summed_up
from shared.errors import Invalid, Refused, TooLarge
from shared.wire import explain

MAX_VALUES = 20_000
"""Of one request, in all its lists and tables."""
MAX_BATCH_VALUES = 100_000
SLICE = 10_000
"""So many tokens are looked at before others get their turn."""

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|,', re.DOTALL)
M = TypeVar("M", bound=BaseModel)
BYTES_PER_SECOND = 64 * 1024
"""The slowest pace at which a large body may come."""


async def check_shape(body: bytes, most: int) -> None:
    """Raises TooLarge for a document of more than ``most`` values; whether it is JSON shows later."""
    if body.count(b",") < most:  # those in texts included, so most bodies need no second look
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
    """The body says it is something else. It also keeps pages in browsers out: they may send JSON only when asked."""

    status = 415
    title = "Unsupported media type"


class TooSlow(Refused):
    """Half a body holds a connection, and what came of it: nobody may do that for long."""

    status = 408
    title = "Request timeout"


def body_of(model: type[M], cap: int, values: int = MAX_VALUES) -> Callable[[Request], Awaitable[M]]:
    """A dependency that gives the validated body of at most ``cap`` bytes and so many values."""

    async def body(request: Request) -> M:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            raise NotJson("send the body as JSON, with the header `Content-Type: application/json`")
        read = await _read(request, cap)
        await check_shape(read, values)
        return await asyncio.to_thread(parse, model, read)

    return body


def document(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI side of ``body_of``; ``orchestrator.openapi`` adds the schema it refers to."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


async def _read(request: Request, cap: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > cap:
        raise _too_large(int(declared), cap)
    body = bytearray()
    loop = asyncio.get_running_loop()
    began = loop.time()
    patience: float = request.app.state.settings.body_seconds
    try:
        async with asyncio.timeout(patience) as limit, aclosing(request.stream()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > cap:
                    raise _too_large(len(body), cap)
                limit.reschedule(min(loop.time(), began + len(body) / BYTES_PER_SECOND) + patience)
    except TimeoutError:
        raise TooSlow("the body did not come in time; send it at once") from None
    return bytes(body)


def _too_large(size: int, cap: int) -> TooLarge:
    return TooLarge(f"the body has {size:,} bytes or more, at most {cap:,} are allowed; send less, or in parts")


def parse(model: type[M], body: bytes) -> M:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if error.error_count() == 1 and (first := error.errors(include_url=False)[0])["type"] == "json_invalid":
            raise Refused(f"the body is not valid JSON: {first['msg'].removeprefix('Invalid JSON: ')}") from None
        mistakes = explain(error, model)
        raise Invalid(summed_up(mistakes), mistakes) from None
