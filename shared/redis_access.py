"""The first contact with Redis: whether it answers, and grants the permissions that every process needs."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

from redis.exceptions import (
    AuthenticationError,
    ClusterCrossSlotError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
    RedisError,
)

from .connection import connect
from .errors import Misconfigured, Unavailable
from .runs.keys import BUS, INDEX, KEY_PREFIX, LEASES

NEEDED = (
    "its user needs the keys deputize:*, the channels deputize:* and those of Celery, scripts and SUBSCRIBE; "
    "all rules are in shared/redis_user.acl"
)

SENTINEL = (
    "A Sentinel has an address of another form: redis+sentinel://HOST:PORT,HOST:PORT/SERVICE "
    "(shared/docs/operating-the-store.md)"
)
CLUSTER = (
    "Redis Cluster is not supported: one step writes several delegations and the queue, which a cluster divides among "
    "its servers. Name one primary (shared/docs/operating-the-store.md)"
)

NO_PASSWORD = ("NOAUTH", "HELLO must be called", "Authentication required")
"""How Redis replies to a client without a password when it requires one."""
COMMAND_SECONDS = 3.0
REDIS_SECONDS = 5.0
STARTING_SECONDS = 60.0
"""Allows for a server that the same supervisor starts at the same time and watches."""
TICK_SECONDS = 0.05


async def check_access(client: Any) -> None:
    """Reads a key, runs a script and subscribes. Raises one of ``REDIS_ERRORS`` if Redis refuses or is unreachable."""
    await client.ping()
    await client.eval("return redis.call('EXISTS', KEYS[1], KEYS[2])", 2, INDEX, LEASES)
    async with client.pubsub() as pubsub:
        await pubsub.subscribe(BUS)
        await pubsub.get_message(timeout=2)
        await pubsub.psubscribe(f"{KEY_PREFIX}/{client.get_connection_kwargs().get('db') or 0}.celeryev/*")
        await pubsub.get_message(timeout=2)


def explained(error: Exception, at: str = "redis_url") -> Misconfigured | None:
    """Returns a refusal as a ``Misconfigured`` with its remedy, or None for an error that a retry may resolve."""
    if any(sign in str(error) for sign in NO_PASSWORD):
        return Misconfigured(
            f"{at}: Redis wants a password: put it into DEPUTIZE_REDIS_URL, as in redis://:PASSWORD@HOST:PORT/0"
        )
    if isinstance(error, AuthenticationError):
        return Misconfigured(f"{at}: {str(error).rstrip('.')}. Check the user and the password in DEPUTIZE_REDIS_URL")
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Misconfigured(
            f"{at}: its certificate is refused: {error}. DEPUTIZE_REDIS_CA_FILE names the certificates that count"
        )
    if "WRONG_VERSION_NUMBER" in str(error):
        return Misconfigured(f"{at}: there is no TLS at this address; use redis://, or the server's other port")
    if "unknown command" in str(error).lower():  # as of EVAL, which a Sentinel does not have
        return Misconfigured(f"{at}: this is not a Redis server that runs scripts: {error}. {SENTINEL}")
    if isinstance(error, ClusterCrossSlotError | MovedError | ClusterDownError):
        return Misconfigured(f"{at}: {CLUSTER}")
    if "DENIED" in str(error):
        return Misconfigured(f"{at}: {error}. Set a password on the server and in DEPUTIZE_REDIS_URL")
    if isinstance(error, NoPermissionError) or "ACL failure in script" in str(error):
        return Misconfigured(f"{at}: Redis refuses commands of deputize: {error}; {NEEDED}")
    if isinstance(error.__cause__ or error, ValueError):  # of a host, which the client passes on as its own error
        return Misconfigured(f"{at}: {error}; correct DEPUTIZE_REDIS_URL")
    return None


def client_of(redis_url: str, seconds: float = COMMAND_SECONDS) -> Any:
    """Returns a client that has not connected yet. Raises Misconfigured for an address that Redis cannot have."""
    try:
        return connect(redis_url, timeout=seconds, retries=0)
    except ValueError as error:
        raise Misconfigured(f"redis_url: {error}; correct DEPUTIZE_REDIS_URL") from None


def reach(redis_url: str, seconds: float = COMMAND_SECONDS) -> None:
    """Does the same as ``reached``, for a process that has no event loop yet."""
    asyncio.run(reached(redis_url, seconds))


async def reached(redis_url: str, seconds: float = COMMAND_SECONDS) -> None:
    """Waits until Redis answers, for up to ``seconds``: it may still be starting. Raises Unavailable, Misconfigured."""
    deadline = time.monotonic() + seconds
    async with client_of(redis_url, seconds) as client:
        parts = urlsplit(redis_url)
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        while True:
            try:
                async with asyncio.timeout(max(TICK_SECONDS, deadline - time.monotonic())):
                    await check_access(client)
                return
            except (RedisError, OSError, ValueError) as error:
                if refusal := explained(error, f"redis_url ({where})"):
                    raise refusal from None
                if time.monotonic() > deadline:
                    reason = str(error).rstrip(".") or "no answer in time"
                    raise Unavailable(
                        f"Redis does not answer at {where}: {reason}; start it, or correct DEPUTIZE_REDIS_URL"
                    ) from None
            await asyncio.sleep(TICK_SECONDS)
