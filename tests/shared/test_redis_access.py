"""The first contact with Redis: what a refusal means, and how long a start waits for a server that starts, too."""

from __future__ import annotations

import time

import pytest
import redis
from redis.exceptions import NoPermissionError, ResponseError

from deputize.shared.connection import explained, reach
from deputize.shared.errors import Misconfigured, Unavailable
from tests.processes.redis_server import RedisProcess


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (redis.AuthenticationError("Authentication required."), "put it into DEPUTIZE_REDIS_URL"),
        (redis.AuthenticationError("WRONGPASS invalid password."), "invalid password. Check the user and the password"),
        (redis.ConnectionError("DENIED Redis is running in protected mode"), "Set a password on the server"),
        (NoPermissionError("no permissions to run 'subscribe'"), "its user needs the keys deputize:*"),
        (ResponseError("ACL failure in script: no"), "its user needs the keys deputize:*"),
    ],
)
def test_a_refusal_is_explained_with_its_remedy(error: Exception, remedy: str) -> None:
    refusal = explained(error)
    assert refusal is not None
    assert str(refusal).startswith("redis_url: ")
    assert remedy in str(refusal)


def test_what_a_later_try_may_mend_is_no_refusal() -> None:
    assert explained(redis.ConnectionError("Connection refused")) is None


def test_a_redis_that_answers_is_reached(redis_url: str) -> None:
    reach(redis_url)


def test_a_start_waits_for_redis_as_long_as_it_may(redis_process: RedisProcess) -> None:
    redis_process.kill()
    begun = time.monotonic()
    with pytest.raises(Unavailable, match=r"[^.]\. Is DEPUTIZE_REDIS_URL correct\?$"):
        reach(redis_process.url, 0.3)
    assert time.monotonic() - begun > 0.3


def test_a_refusal_is_not_waited_for(redis_process: RedisProcess) -> None:
    with redis.Redis.from_url(redis_process.url) as client:
        client.execute_command("ACL", "SETUSER", "default", "resetchannels")
    with pytest.raises(Misconfigured, match="the channels deputize:"):
        reach(redis_process.url, 600)


def test_an_address_that_is_none_is_a_mistake_of_the_settings() -> None:
    with pytest.raises(Misconfigured, match="redis_url: "):
        reach("amqp://host")
