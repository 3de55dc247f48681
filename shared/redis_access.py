"""Checks at start-up that Redis grants the permissions that every process of this project needs."""

from __future__ import annotations

import threading
import time

import redis
from redis.exceptions import NoPermissionError

from .errors import Misconfigured, Unavailable
from .runs.keys import BUS, INDEX, KEY_PREFIX

NEEDED = (
    "its user needs the keys deputize:*, the channels deputize:* and those of Celery, scripts and SUBSCRIBE; "
    "all rules are in shared/redis_user.acl"
)

NO_PASSWORD = ("NOAUTH", "HELLO must be called", "Authentication required")
"""How Redis replies to a client without a password when it requires one."""
REDIS_SECONDS = 5.0
STARTING_SECONDS = 60.0
"""Allows for a server that the same supervisor starts at the same time and watches."""


def check_access(client: redis.Redis) -> None:
    """Reads a key, runs a script and subscribes. Raises ``redis.RedisError`` if Redis refuses or is unreachable."""
    client.ping()
    client.eval("return redis.call('EXISTS', KEYS[1])", 1, INDEX)
    with client.pubsub() as pubsub:
        pubsub.subscribe(BUS)
        pubsub.get_message(timeout=2)
        pubsub.psubscribe(f"{KEY_PREFIX}/{client.get_connection_kwargs().get('db') or 0}.celeryev/*")
        pubsub.get_message(timeout=2)


def explained(error: Exception) -> Misconfigured | None:
    """Returns a refusal as a ``Misconfigured`` with its remedy, or None for an error that a retry may resolve."""
    if any(sign in str(error) for sign in NO_PASSWORD):
        return Misconfigured(
            "redis_url: Redis wants a password: put it into DEPUTIZE_REDIS_URL, as in redis://:PASSWORD@HOST:PORT/0"
        )
    if isinstance(error, redis.AuthenticationError):
        return Misconfigured(
            f"redis_url: {str(error).rstrip('.')}. Check the user and the password in DEPUTIZE_REDIS_URL"
        )
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Misconfigured(
            f"redis_url: its certificate is refused: {error}. DEPUTIZE_REDIS_CA_FILE names the certificates that count"
        )
    if "WRONG_VERSION_NUMBER" in str(error):
        return Misconfigured("redis_url: there is no TLS at this address; use redis://, or the server's other port")
    if "DENIED" in str(error):
        return Misconfigured(f"redis_url: {error}. Set a password on the server and in DEPUTIZE_REDIS_URL")
    if isinstance(error, NoPermissionError) or "ACL failure in script" in str(error):
        return Misconfigured(f"redis_url: Redis refuses what deputize does: {error}; {NEEDED}")
    return None


def reach(redis_url: str, seconds: float = REDIS_SECONDS) -> None:
    """Waits until Redis answers, for up to ``seconds``: it may still be starting. Raises Unavailable, Misconfigured."""
    deadline = time.monotonic() + seconds
    try:
        client = redis.Redis.from_url(redis_url, socket_timeout=2, socket_connect_timeout=2)
    except ValueError as error:
        raise Misconfigured(f"redis_url: {error}; correct DEPUTIZE_REDIS_URL") from None
    with client:
        while True:
            try:
                check_access(client)
                return
            except redis.RedisError as error:
                if refusal := explained(error):
                    raise refusal from None
                if time.monotonic() > deadline:
                    reason = str(error).rstrip(".")
                    raise Unavailable(f"Redis does not answer: {reason}. Is DEPUTIZE_REDIS_URL correct?") from None
            threading.Event().wait(0.05)
