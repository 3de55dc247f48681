"""The address of a service that Sentinel watches, and who is asked for its primary."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio.sentinel import MasterNotFoundError

from deputize.orchestrator.sockets import free_port
from deputize.shared.connection import connect, database_of
from deputize.shared.connection_pool import Pool
from deputize.shared.errors import Misconfigured
from deputize.shared.queue import broker_of
from deputize.shared.runs.replicas import replicas_of
from deputize.shared.sentinel import SentinelAddress
from deputize.shared.settings import Settings
from tests.processes.replication import Replicated


def test_an_address_names_hosts_service_database_and_who_asks() -> None:
    found = SentinelAddress.of("redis+sentinel://me:p%40w@one:1,two,[::1]:3/the%20store/4")
    assert list(found.hosts) == [("one", 1), ("two", 26379), ("::1", 3)]
    assert (found.service, found.database, found.user, found.password) == ("the store", 4, "me", "p@w")


@pytest.mark.parametrize(
    "address",
    [
        "one",
        "one/",
        "one/store/x",
        "one/store?a=b",
        "one,/store",
        "one:x/store",
        "one:0/store",
        "one:70000/store",
        "/a",
    ],
)
def test_an_address_that_is_none_is_refused_with_the_form(address: str) -> None:
    with pytest.raises(ValueError, match="give redis\\+sentinel://HOST:PORT,HOST:PORT/SERVICE"):
        SentinelAddress.of(f"redis+sentinel://{address}")


def test_the_broker_has_the_same_sentinels_service_and_database() -> None:
    url, options = broker_of("redis+sentinel://:p%40w@one:1,two:2/store/4")
    assert url == "sentinel://:p%40w@one:1/4;sentinel://:p%40w@two:2/4"
    assert options["master_name"] == "store"


def test_a_client_has_the_database_of_its_address() -> None:
    assert database_of(connect("redis+sentinel://one/store/4")) == 4


def test_sentinel_needs_replicas_that_acknowledge() -> None:
    address = {"DEPUTIZE_REDIS_URL": "redis+sentinel://one/store"}
    with pytest.raises(Misconfigured, match="set DEPUTIZE_REDIS_REPLICAS to at least 1"):
        replicas_of(Settings.load(environ=address))
    assert replicas_of(Settings.load(environ={**address, "DEPUTIZE_REDIS_REPLICAS": "1"}))


@pytest.mark.long
async def test_sentinels_that_do_not_answer_are_named_with_the_service() -> None:
    address = SentinelAddress.of(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{free_port()}/store")
    with pytest.raises(MasterNotFoundError, match="no Sentinel knows a primary of 'store'"):
        await address.discover_master("store")


async def test_each_new_connection_asks_for_the_primary(replicated: Replicated) -> None:
    """A connection that was closed does not go back to the address of before."""
    host, port = "127.0.0.1", replicated.primary.port
    asked = list[bytes]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while count := await reader.readline():
            words = [(await reader.readline(), await reader.readline())[1].strip() for _ in range(int(count[1:]))]
            asked.append(words[0])
            known = f"*2\r\n${len(host)}\r\n{host}\r\n${len(str(port))}\r\n{port}\r\n".encode()
            writer.write(known if words[0] == b"SENTINEL" else b"+OK\r\n" if words[0] != b"HELLO" else b"%0\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as sentinel:
        at = sentinel.sockets[0].getsockname()[1]
        async with connect(f"redis+sentinel://127.0.0.1:{at}/store") as redis:
            assert await redis.ping()
            connection = await redis.connection_pool.get_connection()
            await connection.disconnect()
            await connection.send_command("PING")
            assert await connection.read_response()
            await redis.connection_pool.release(connection)
            assert isinstance(redis.connection_pool, Pool)
    assert asked.count(b"SENTINEL") == 2
