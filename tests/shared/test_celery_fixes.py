"""Each fix of kombu is still needed: a test that fails here shows which one can go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import redis.exceptions
from kombu.asynchronous import Hub
from kombu.connection import Connection
from kombu.transport import redis as kombu_redis

from deputize.shared.queue import SafeChannel, SafeSentinelTransport, SafeTransport, broker_url, create_app
from deputize.shared.settings import Settings


def opened(kind: type[kombu_redis.Channel]) -> kombu_redis.Channel:
    """A channel without a connection: everything that the fixes look at is set by the test."""
    channel = object.__new__(kind)
    channel.closed = True  # there is nothing to close when it goes
    channel.connection = None
    return channel


def test_kombu_answers_with_an_attribute_error_where_its_connection_was_closed() -> None:
    with pytest.raises(AttributeError):
        opened(kombu_redis.Channel)._connparams()
    with pytest.raises(redis.exceptions.ConnectionError):
        opened(SafeChannel)._connparams()


def read_nonsense(kind: type[kombu_redis.Channel]) -> bool:
    channel = opened(kind)
    answer = (b"deputize", b"no ticket")
    channel.client = SimpleNamespace(parse_response=lambda *_, **__: answer, connection=None)
    channel._queue_cycle = SimpleNamespace(rotate=lambda queue: None)
    channel._flush_brpop_reauth = lambda: None
    channel.connection = SimpleNamespace(_deliver=lambda message, queue: None)
    return channel._brpop_read()


def test_kombu_raises_what_an_entry_that_is_no_ticket_raises() -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whichever JSON library kombu has found
        read_nonsense(kombu_redis.Channel)
    assert read_nonsense(SafeChannel) is True


def clients(kind: type[kombu_redis.Channel]) -> tuple[object, object]:
    channel: Any = opened(kind)
    channel._pool = SimpleNamespace(connection_kwargs={})
    channel.Client = lambda connection_pool: SimpleNamespace(connection_pool=connection_pool)
    return channel._create_client(), channel._create_client()


def test_kombu_makes_a_client_for_every_command() -> None:
    first, second = clients(kombu_redis.Channel)
    assert first is not second
    first, second = clients(SafeChannel)
    assert first is second


def left_in_the_loop(kind: type[kombu_redis.Transport], redis_url: str) -> int:
    """The callbacks of a loop after two connections that were closed."""
    loop = Hub()
    try:
        for _ in range(2):
            transport = kind(client=Connection(broker_url(redis_url)))
            connection = transport.establish_connection()
            transport.register_with_event_loop(connection, loop)
            assert loop.on_tick
            transport.close_connection(connection)
        return len(loop.on_tick)
    finally:
        loop.close()


def test_kombu_leaves_every_closed_connection_in_the_event_loop(redis_url: str) -> None:
    assert left_in_the_loop(kombu_redis.Transport, redis_url) == 2
    assert left_in_the_loop(SafeTransport, redis_url) == 0


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://localhost", SafeTransport),
        ("rediss://localhost", SafeTransport),
        ("unix:///tmp/r.sock", SafeTransport),
        ("redis+sentinel://localhost/primary", SafeSentinelTransport),
    ],
)
def test_the_app_uses_the_fixes_however_it_reaches_redis(url: str, kind: type[kombu_redis.Transport]) -> None:
    app = create_app(Settings(), url)
    assert app.connection_for_read().get_transport_cls() is kind
    assert issubclass(kind.Channel, SafeChannel)
    app.close()
