"""The first contact with Redis: what a refusal means, and how long a start waits for a server that starts, too."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from redis.exceptions import NoPermissionError, ResponseError

from deputize.orchestrator.redis_server import find_program
from deputize.shared.errors import DeputizeError, Misconfigured, Unavailable
from deputize.shared.redis_access import explained, reach, reached
from tests.processes.redis_server import RedisProcess
from tests.waiting import until_sync


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (redis.AuthenticationError("Authentication required."), "put it into DEPUTIZE_REDIS_URL"),
        (redis.AuthenticationError("WRONGPASS invalid password."), "invalid password. Check the user and the password"),
        (redis.ConnectionError("DENIED Redis is running in protected mode"), "Set a password on the server"),
        (NoPermissionError("no permissions to run 'subscribe'"), "its user needs the keys deputize:*"),
        (ResponseError("ACL failure in script: no"), "its user needs the keys deputize:*"),
        (ResponseError("unknown command 'EVAL', with args"), "not a Redis server that runs scripts"),
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
    with pytest.raises(Unavailable, match=r"[^.]; start it, or correct DEPUTIZE_REDIS_URL$"):
        reach(redis_process.url, 0.3)
    assert time.monotonic() - begun > 0.3


def test_a_refusal_is_not_waited_for(redis_process: RedisProcess) -> None:
    with redis.Redis.from_url(redis_process.url) as client:
        client.execute_command("ACL", "SETUSER", "default", "resetchannels")
    with pytest.raises(Misconfigured, match="the channels deputize:"):
        reach(redis_process.url, 600)


@pytest.mark.parametrize("scheme", ["sentinel", "rediss+sentinel"])
def test_an_address_of_sentinel_in_another_form_is_refused_with_the_form(scheme: str) -> None:
    with pytest.raises(Misconfigured, match=rf"{re.escape(scheme)}:// is not supported.*redis\+sentinel://HOST:PORT"):
        reach(f"{scheme}://:pw@one/mymaster")


def test_a_cluster_is_refused_with_the_reason(tmp_path: Path) -> None:
    server = RedisProcess(tmp_path, "--cluster-enabled", "yes")
    try:
        server.client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        with pytest.raises(Misconfigured, match="Redis Cluster is not supported: one step writes several delegations"):
            reach(server.url, 60)
    finally:
        server.kill()


def test_a_real_sentinel_is_known_by_what_it_cannot_do(tmp_path: Path) -> None:
    (tmp_path / "sentinel.conf").write_text(
        f"port 0\nunixsocket {tmp_path}/s.sock\nsentinel monitor one 127.0.0.1 1 1\n"
    )
    command = [str(find_program()), str(tmp_path / "sentinel.conf"), "--sentinel"]
    sentinel = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        until_sync((tmp_path / "s.sock").exists)
        with pytest.raises(
            Misconfigured, match=r"not a Redis server that runs scripts: .*EVAL.* redis\+sentinel://HOST:PORT"
        ):
            reach(f"unix://{tmp_path}/s.sock")
    finally:
        sentinel.kill()
        sentinel.wait()


def test_an_address_that_is_none_is_a_mistake_of_the_settings() -> None:
    with pytest.raises(Misconfigured, match="redis_url: "):
        reach("amqp://host")


def test_a_host_that_is_no_name_is_a_mistake_of_the_settings() -> None:
    with pytest.raises(Misconfigured, match=r"redis://redis\.\.example/0.* correct DEPUTIZE_REDIS_URL$") as caught:
        reach("redis://:secret@redis..example/0")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "error"),
    [(None, Unavailable), (b"", Unavailable), (b"-NOAUTH Authentication required.\r\n", Misconfigured)],
    ids=["silent", "closing", "NOAUTH"],
)
async def test_a_first_contact_that_fails_names_the_address_and_the_remedy_in_time(
    answer: bytes | None, error: type[DeputizeError]
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            if answer is None:
                await reader.read()
            elif await reader.read(1000):
                writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        begun = time.monotonic()
        with pytest.raises(error) as caught:
            await reached(f"redis://:secret@{address}", 0.5)
        assert time.monotonic() - begun < 5
    assert f"redis://{address}" in str(caught.value)
    assert "DEPUTIZE_REDIS_URL" in str(caught.value)
    assert ("; start it, or correct" in str(caught.value)) == (error is Unavailable)
    assert "secret" not in str(caught.value)


async def test_a_first_contact_can_be_cancelled_at_once() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        came.set()
        await reader.read()
        writer.close()

    came = asyncio.Event()
    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        waiting = asyncio.create_task(reached(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", 60))
        await came.wait()
        waiting.cancel()
        async with asyncio.timeout(5):
            await asyncio.wait({waiting})
    assert waiting.cancelled()
