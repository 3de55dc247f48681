"""What Redis must let every process of this project do: tried once, so that a refusal is one clear line."""

from __future__ import annotations

import redis
from redis.exceptions import NoPermissionError

from shared.errors import Misconfigured
from shared.keys import INDEX

CHANNEL = "deputize:bus"
NEEDED = "its user needs the keys deputize:*, the channels deputize:* and those of Celery, scripts and SUBSCRIBE"


def check_access(client: redis.Redis) -> None:
    """Reads a key, runs a script and subscribes. Raises ``redis.RedisError`` where Redis refuses or is away."""
    client.ping()
    client.eval("return redis.call('EXISTS', KEYS[1])", 1, INDEX)
    with client.pubsub() as pubsub:
        pubsub.subscribe(CHANNEL)
        pubsub.get_message(timeout=2)


def explained(error: Exception) -> Misconfigured | None:
    """What to mend where Redis refuses us; None where it is only away or busy, and trying again is right."""
    if isinstance(error, redis.AuthenticationError):
        return Misconfigured(f"redis_url: {error}. Check the user and the password in DEPUTIZE_REDIS_URL")
    if "DENIED" in str(error):
        return Misconfigured(f"redis_url: {error}. Set a password on the server and in DEPUTIZE_REDIS_URL")
    if isinstance(error, NoPermissionError) or "ACL failure in script" in str(error):
        return Misconfigured(f"redis_url: Redis refuses what deputize does: {error}; {NEEDED}")
    return None
