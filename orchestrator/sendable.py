"""What stands before the service in Python, where a text may hold what no other caller can write."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from ..shared.events import Envelope
from .operation import Operation
from .operations import Service
from .request_fields import check_sendable

_ESCAPED_BYTES = re.compile("[\udc80-\udcff]")
"""What stands for the bytes of a path that are not UTF-8: it is sent as bytes."""


class SendableOnly(Service):
    """A service that refuses the arguments that cannot be sent, and names each by its parameter.

    A name of a file in an old encoding has lone surrogates in Python. Requests have refused them when they were made.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    async def _perform(self, operation: Operation, given: dict[str, Any]) -> Any:
        for name, value in given.items():
            if isinstance(value, str | Mapping):
                check_sendable(f"/{name}", value)
        return await getattr(self._service, operation.name)(**given)

    def follow(self, id: str, after: int = 0) -> AsyncGenerator[Envelope]:
        check_sendable("/id", id)
        return self._service.follow(id, after)

    def follow_all(self) -> AsyncGenerator[Envelope]:
        return self._service.follow_all()

    def file(self, id: str, path: str, *, base: bool = False) -> AsyncGenerator[bytes]:
        check_sendable("/id", id)
        check_sendable("/path", _ESCAPED_BYTES.sub("", path))
        return self._service.file(id, path, base=base)

    async def not_ready(self) -> str | None:
        return await self._service.not_ready()
