"""What guards the operations of the service: errors of its Redis, and whose delegation an operation concerns."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import wraps
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar

from redis.exceptions import ReadOnlyError, RedisError

from ..shared.connection import NO_WRITES, REDIS_DOWN
from ..shared.errors import OutOfSpace, Unavailable
from ..shared.settings import Settings
from .home import NO_ANSWER, NO_WRITES_TAKEN, REFUSED, is_full, no_space

K = TypeVar("K", bound=type[Any])
_READ_ONLY = "it is a read-only replica. After a failover the new primary takes them; else correct DEPUTIZE_REDIS_URL"
OF_FILES = {"upload", "files", "open_file"}
"""What works on files of this machine, whose errors are not those of Redis."""


def guarded(kind: K) -> K:
    """Lets the public methods of a service raise Unavailable where its Redis does not answer.

    Those of one delegation raise NotFound where that belongs to another owner.
    """
    for name, function in [*vars(kind).items()]:
        if iscoroutinefunction(function) and not name.startswith("_") and name not in OF_FILES:
            setattr(kind, name, _guarded_function(function))
    return kind


def _guarded_function(function: Any) -> Any:
    is_of_one = [*signature(function).parameters][1:2] == ["id"] and function.__name__ != "answer_permission"

    @wraps(function)
    async def call(self: Any, *args: Any, **fields: Any) -> Any:
        async with redis_guard(self._settings):
            if is_of_one:
                await self.ownership.check(args[0] if args else fields["id"])
            return await function(self, *args, **fields)

    return call


@asynccontextmanager
async def redis_guard(settings: Settings) -> AsyncGenerator[None]:
    """Raises Unavailable for errors of Redis within the block."""
    try:
        yield
    except (*REDIS_DOWN, RedisError) as error:
        if settings.local and is_full(settings.home):
            raise OutOfSpace(no_space(settings.home)) from error
        if isinstance(error, REDIS_DOWN) and not isinstance(error, ReadOnlyError):
            raise Unavailable(f"{NO_ANSWER} ({error}); try again in a moment") from error
        raise Unavailable(_refused(error)) from error


def _refused(error: RedisError) -> str:
    known = (cause for mark, cause in NO_WRITES.items() if mark in str(error))
    if cause := _READ_ONLY if isinstance(error, ReadOnlyError) else next(known, None):
        return f"{NO_WRITES_TAKEN}: {cause}. Runs that are under way wait, and go on then"
    return f"{REFUSED} ({error}); see the service's log"
