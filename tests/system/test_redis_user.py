"""A Redis behind TLS with a user of the least rights: all that the system does works, and nothing else is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import redis
from redis.exceptions import NoPermissionError

from deputize.shared.delegation import Status
from deputize.shared.settings import Settings
from tests.architecture.sources import ROOT
from tests.network.certificates import Authority
from tests.network.tls_proxy import TlsPort, tls_port
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import call, say, script
from tests.runs.fleet import open_fleet

pytestmark = pytest.mark.system
PASSWORD = "the-password-of-the-user"
RULES = [
    rule
    for line in (ROOT / "shared/redis_user.acl").read_text().splitlines()
    for rule in line.split()
    if not line.startswith("#")
]


@pytest.fixture
def server(redis_process: RedisProcess) -> RedisProcess:
    with redis.Redis.from_url(redis_process.url) as client:
        client.execute_command("ACL", "SETUSER", "deputize", "on", f">{PASSWORD}", *RULES)
    return redis_process


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def port(server: RedisProcess, authority: Authority) -> Iterator[TlsPort]:
    behind = unquote(server.url.removeprefix("unix://"))
    with tls_port(behind, authority.issue("localhost"), authority.path) as port:
        yield port


def settings(port: TlsPort, authority: Authority) -> Settings:
    parts = {
        "user": "deputize",
        "password": PASSWORD,
        "ca_file": authority.path,
        "cert_file": authority.issue("c.test"),
    }
    return Settings.load(environ={}, redis_url=f"rediss://localhost:{port.port}/0", redis=parts)


async def test_delegations_run_over_tls_with_the_least_rights(
    server: RedisProcess, port: TlsPort, authority: Authority, tmp_path: Path
) -> None:
    url = settings(port, authority).redis_url
    assert url
    with redis.Redis.from_url(server.url) as client:
        before = {each["id"] for each in client.client_list()}
        async with open_fleet(url, tmp_path / "home", lease_seconds=2, shutdown_seconds=1) as fleet:
            await fleet.start()
            model = script(tmp_path, [call("write_file", path="a.txt", content="x")], [say("done")])
            key = "once"
            id = await fleet.hand_over(model=model, tools=["write_file"], idempotency_key=key, labels={"a": "b"})
            assert [each.event.type for each in await fleet.follow(id)][-1] == "run_finished"
            assert (await fleet.result(id)).status == Status.SUCCEEDED
            assert (
                await fleet.hand_over(model=model, tools=["write_file"], idempotency_key=key, labels={"a": "b"}) == id
            )
            hung = await fleet.hand_over(model=script(tmp_path, [call("bash", command="sleep 1000")]), tools=["bash"])
            await fleet.until_event(hung, "step_started")
            await fleet.service.cancel(hung)
            assert (await fleet.result(hung)).status == Status.CANCELLED
            assert [item.id for item in (await fleet.service.list(status=Status.CANCELLED)).items] == [hung]
            filed = await fleet.service.list(status=Status.SUCCEEDED, labels={"a": "b"})
            assert [item.id for item in filed.items] == [id]
            assert (await fleet.service.cost()).total.delegations == 2
            for service, ended in ((fleet.service, 1), (fleet.service.of("ann", is_confined=True), 0)):
                assert (await service.counts()).succeeded == ended
                assert await service.capacity() == []
            connected = [each for each in client.client_list() if each["id"] not in before]
            assert {each["user"] for each in connected} == {"deputize"}
            assert len(connected) > 5
        denied: list[Any] = client.acl_log()
    assert denied == []
    assert {b"BRPOP", b"EVALSHA", b"PSUBSCRIBE", b"SUBSCRIBE", b"PUBLISH"} <= port.words


FORBIDDEN = [
    *(
        "GET other",
        "SET other 1",
        "DEL other",
        "HGETALL celery",
        "LPUSH celery x",
        "PUBLISH other x",
        "SUBSCRIBE other",
    ),
    *("PSUBSCRIBE *", "KEYS *", "SCAN 0", "FLUSHALL", "FLUSHDB", "CONFIG GET *", "CONFIG SET dir /", "ACL LIST"),
    *("ACL WHOAMI", "SCRIPT FLUSH", "SHUTDOWN", "SAVE", "MONITOR", "CLIENT LIST", "CLIENT KILL ID 1"),
    *("REPLICAOF h 1", "SLAVEOF h 1", "MODULE LIST", "MIGRATE h 1 k 0 1", "RENAME deputize:a b", "FUNCTION LIST"),
]


@pytest.mark.parametrize("command", FORBIDDEN)
def test_all_else_is_denied_to_the_user(server: RedisProcess, command: str) -> None:
    with redis.Redis.from_url(server.url, username="deputize", password=PASSWORD) as client:
        assert client.set("deputize:test", 1, ex=1)
        with pytest.raises(NoPermissionError):
            client.execute_command(*command.split())
        with pytest.raises(redis.ResponseError, match=r"ACL failure|permission|not allowed from script"):
            client.eval("return redis.call(unpack(ARGV))", 0, *command.split())


def test_every_command_of_our_scripts_is_allowed() -> None:
    allowed = {rule[1:] for rule in RULES if rule.startswith("+")}
    scripts = [path.read_text() for path in (ROOT / "shared/runs/lua").glob("*.lua")]
    used = {name.lower() for text in scripts for name in re.findall(r"redis\.p?call\('(\w+)'", text)}
    assert len(used) > 15
    assert used <= allowed
