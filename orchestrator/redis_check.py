"""Checks the Redis at a configured address before anything is started. Apart, because its client is slow to import."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

from redis.exceptions import AuthenticationError, RedisError

from ..shared.connection import connect
from ..shared.errors import Misconfigured, Unavailable
from ..shared.redis_access import NO_PASSWORD

PATIENCE_SECONDS = 3.0
"""Seconds to wait for a server that is starting."""
TICK_SECONDS = 0.1


async def check_redis(url: str) -> None:
    """Returns when Redis answers. Raises Misconfigured at once for permanent errors, else Unavailable."""
    try:
        client = connect(url, timeout=PATIENCE_SECONDS)
    except ValueError as error:
        raise Misconfigured(f"DEPUTIZE_REDIS_URL is not the address of a Redis: {error}") from None
    where = _without_password(url)
    deadline = time.monotonic() + PATIENCE_SECONDS
    async with client:
        while True:
            try:
                async with asyncio.timeout(max(0.01, deadline - time.monotonic())):
                    await client.ping()
                return
            except (RedisError, OSError, ValueError) as error:
                _raise_if_final(error, where)
                if time.monotonic() + TICK_SECONDS > deadline:
                    reason = str(error).rstrip(".") or "no answer in time"
                    raise Unavailable(
                        f"Redis does not answer at {where}: {reason}; start it, or correct DEPUTIZE_REDIS_URL"
                    ) from None
            await asyncio.sleep(TICK_SECONDS)


def _raise_if_final(error: Exception, where: str) -> None:
    reason = str(error)
    if any(sign in reason for sign in NO_PASSWORD):
        raise Misconfigured(
            f"Redis at {where} wants a password: put it into DEPUTIZE_REDIS_URL, as in redis://:PASSWORD@HOST:PORT/0"
        ) from None
    if isinstance(error, AuthenticationError) or "WRONGPASS" in reason:
        raise Misconfigured(f"Redis at {where} refuses the user or password of DEPUTIZE_REDIS_URL: {reason}") from None
    if isinstance(error, ValueError):
        raise Misconfigured(f"DEPUTIZE_REDIS_URL is not the address of a Redis: {reason}") from None


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
