"""What stands before the service in Python: it checks the arguments of operations by their signatures.

The service checks few itself: what comes over HTTP was checked by the models of its routes.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from functools import cache
from inspect import Parameter, signature
from typing import Any, get_type_hints

from pydantic import ConfigDict, create_model

from ..shared.events import Envelope
from ..shared.wire import Request
from .operation import Operation
from .operations import Service
from .request_fields import validated
from .uploads import AcceptedUpload

_ESCAPED_BYTES = re.compile("[\udc80-\udcff]")
"""What stands for the bytes of a path that are not UTF-8: it is sent as bytes."""


class _Arguments(Request):
    """Base class of the arguments of operations, which have the names that Python has for them."""

    model_config = ConfigDict(alias_generator=None)


class CheckedArguments(Service):
    """A service that refuses wrong arguments by ``Invalid``, which names each by its parameter.

    A text may hold what cannot be sent: a name of a file in an old encoding has lone surrogates in Python.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    async def _perform(self, operation: Operation, given: dict[str, Any]) -> Any:
        return await getattr(self._service, operation.name)(**_checked(operation.name, given))

    async def upload(self, content: AsyncIterable[bytes], sha256: str | None = None) -> AcceptedUpload:
        return await self._service.upload(content, sha256)

    def follow(self, id: str, after: int = 0) -> AsyncGenerator[Envelope]:
        return self._service.follow(**_checked("follow", {"id": id, "after": after}))

    def follow_all(self) -> AsyncGenerator[Envelope]:
        return self._service.follow_all()

    def file(self, id: str, path: str, *, base: bool = False) -> AsyncGenerator[bytes]:
        asked: Any = path
        sent = _ESCAPED_BYTES.sub("", path) if isinstance(asked, str) else path
        checked = _checked("file", {"id": id, "path": sent, "base": base})
        return self._service.file(checked["id"], path, base=checked["base"])

    async def not_ready(self) -> str | None:
        return await self._service.not_ready()


def _checked(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of an operation in the types of its parameters. Raises Invalid with each mistake."""
    found = validated(_model_of(name), given)
    return {each: getattr(found, each) for each in given}


@cache
def _model_of(name: str) -> type[_Arguments]:
    function = getattr(Service, name)
    kinds = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {
        each.name: (kinds[each.name], ... if each.default is Parameter.empty else each.default)
        for each in signature(function).parameters.values()
        if each.name != "self"
    }
    return create_model(name, __base__=_Arguments, **fields)
