"""What the proxy adds to requests to a host with a credential, and what it passes on of requests and answers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import h11
import pytest

from deputize.shared.settings import Settings
from deputize.shared.settings.credentials import CredentialSettings
from deputize.worker.web.authority import system_authorities
from deputize.worker.web.credentials import Credential, Credentials, HostCredentials, may_lead_elsewhere
from deputize.worker.web.egress_proxy import reach_of
from deputize.worker.web.targets import target
from tests.network.internet import response
from tests.waiting import until
from tests.worker.web.edge import HOST, TOKEN, Edge, edge

ASKED = f"GET /allowed/x HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
LAST = ASKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


def added(head: str) -> list[str]:
    return [line for line in head.split("\r\n") if TOKEN in line or line.startswith("Authorization")]


@pytest.mark.parametrize(
    ("form", "header"),
    [
        ({}, f"Authorization: Bearer {TOKEN}"),
        ({"header": "PRIVATE-TOKEN"}, f"PRIVATE-TOKEN: {TOKEN}"),
        ({"header": "Authorization", "token": f"token {TOKEN}"}, f"Authorization: token {TOKEN}"),
        ({"basic": "me"}, "Authorization: Basic bWU6Y2FuYXJ5LXRva2VuLTlmODNhMWM0ZTVkNw=="),
    ],
)
async def test_a_token_is_sent_in_its_form(form: dict[str, Any], header: str, tmp_path: Path) -> None:
    async with edge(tmp_path, **form) as edged:
        assert b"reached" in await edged.get("/allowed/x?q=1", "X-Own: kept")
        assert added(edged.heads[0]) == [header]
        assert edged.heads[0].startswith("GET /allowed/x?q=1 HTTP/1.1\r\n")
        assert "x-own: kept" in edged.heads[0].lower()
        assert edged.used == ["credentials.index: GET good.test/allowed/x 200"]


@pytest.mark.parametrize("connect", ["good.test:443", "GOOD.test:443", "good.test.:443"])
@pytest.mark.parametrize("name", [HOST, None])
async def test_a_host_is_the_same_however_it_is_written(connect: str, name: str | None, tmp_path: Path) -> None:
    async with edge(tmp_path) as edged:
        assert b"reached" in await edged.get("/allowed/x", connect=connect, name=name)
        assert len(added(edged.heads[0])) == 1


async def test_a_connection_carries_requests_one_after_the_other(tmp_path: Path) -> None:
    async with edge(tmp_path) as edged:
        answers = await edged.ask(ASKED + ASKED.replace(b"allowed", b"other") + LAST)
        assert answers.count(b"reached") == 3
        assert [len(added(head)) for head in edged.heads] == [1, 0, 1]
        assert edged.used == ["credentials.index: GET good.test/allowed/x 200"]


async def test_a_refused_request_ends_its_connection(tmp_path: Path) -> None:
    async with edge(tmp_path) as edged:
        answers = await edged.ask(ASKED.replace(b"GET", b"PUT") + LAST)
        assert (answers.count(b"HTTP/1.1 "), edged.heads) == (1, [])
        assert b"403 credentials.index is for reading, so PUT is refused" in answers


@pytest.mark.parametrize("framing", ["Content-Length: 9", "Content-Length: 9\r\nExpect: 100-continue"])
async def test_a_credential_for_writing_is_for_bodies_too(framing: str, tmp_path: Path) -> None:
    async with edge(tmp_path, write=True) as edged:
        head = f"POST /allowed/x HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n{framing}\r\n\r\nsome body"
        assert b"reached" in await edged.ask(head.encode())
        assert edged.heads[0].endswith("\r\n\r\nsome body")
        assert edged.used == ["credentials.index: POST good.test/allowed/x 200"]


async def test_large_answers_are_passed_on_as_they_come(tmp_path: Path) -> None:
    body = bytes(range(256)) * 32_768
    async with edge(tmp_path, lambda head: response(body, "application/octet-stream")) as edged:
        answer = await edged.get("/allowed/x")
        assert answer.partition(b"\r\n\r\n")[2] == body
        head = await edged.get("/allowed/x", method="HEAD")
        assert b"Content-Length: 8388608" in head


async def test_http_2_is_not_offered(tmp_path: Path) -> None:
    async with edge(tmp_path) as edged:
        reader, writer = await asyncio.open_connection(*edged.address)
        writer.write(b"CONNECT good.test:443 HTTP/1.1\r\n\r\n"[:-2] + b"Host: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        context = edged.context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        await writer.start_tls(context, server_hostname=HOST)
        inside: ssl.SSLObject = writer.get_extra_info("ssl_object")
        assert inside.selected_alpn_protocol() == "http/1.1"
        writer.close()


async def test_a_client_that_does_not_wait_for_the_tunnel_is_told_so(tmp_path: Path) -> None:
    async with edge(tmp_path) as edged:
        answer = await edged.raw(b"CONNECT good.test:443 HTTP/1.1\r\nHost: x\r\n\r\n\x16\x03\x01")
        assert b"400 the client has to wait for the answer to CONNECT" in answer


def is_served() -> bool:
    return any(task.get_name() == "a connection of a command's proxy" for task in asyncio.all_tasks())


@pytest.mark.parametrize("asks_before", [True, False])
async def test_a_connection_without_a_request_is_a_sign_of_distrust_before_the_first_one(
    asks_before: bool, tmp_path: Path
) -> None:
    async with edge(tmp_path) as edged:
        if asks_before:
            await edged.get("/allowed/x")
        reader, writer = await asyncio.open_connection(*edged.address)
        writer.write(b"CONNECT good.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await writer.start_tls(edged.context(), server_hostname=HOST)
        writer.close()
        await until(lambda: not is_served(), 10)  # its place is free at once, not after a time limit
        assert len(edged.refused) == (not asks_before)


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (f"{TOKEN}\n{TOKEN}", 0o600, "needs one line of visible ASCII characters"),
        (f"Bearer {TOKEN}", 0o600, 'for a scheme and a token set header = "Authorization"'),
        ("short", 0o600, "needs a token of at least 8 characters"),
        (TOKEN, 0o644, "other users may read"),
    ],
)
async def test_a_file_that_cannot_be_used_is_named_and_not_quoted(
    text: str, mode: int, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "wrong"
    file.write_text(text)
    file.chmod(mode)
    async with edge(tmp_path, token_file=file) as edged:
        answer = (await edged.get("/allowed/x")).decode()
        assert why in answer
        assert "credentials.index.token_file: " in answer
        assert (TOKEN in answer, edged.heads) == (False, [])
        assert b"reached" in await edged.get("/other")


async def test_the_longest_path_decides(tmp_path: Path) -> None:
    async with edge(tmp_path) as edged:
        file = tmp_path / "second"
        file.write_text("second-token")
        file.chmod(0o600)
        second = CredentialSettings(host=HOST, path="/allowed/more", token_file=file)
        host = edged.proxy.credentials and edged.proxy.credentials.of(target(f"https://{HOST}/"))
        assert host
        host.add(Credential.of("second", second))
        for path in ("/allowed/more/x", "/allowed/more", "/allowed/morex"):
            await edged.get(path)
        assert ["second-token" in head for head in edged.heads] == [True, True, False]


def test_different_uses_are_reported_once_and_not_without_end() -> None:
    told = list[str]()
    credentials, host = Credentials({}, told.append), HostCredentials(target(f"https://{HOST}/"))
    for number in range(600):
        for _ in range(2):
            request = h11.Request(method="GET", target=f"/{number}?secret", headers=[("Host", HOST)])
            credentials.note(Credential("index", "", write=False), host, request, 200)
    assert told[0] == "credentials.index: GET good.test/0 200"
    assert len(told) == 501
    assert told[-1] == "credentials: the worker's log has further uses"


@pytest.mark.parametrize("size", [1, 7, 24, 25, 26, 60, 1000])
async def test_a_token_is_found_wherever_a_body_is_cut(size: int) -> None:
    body = b"".join(b"%d" % n + TOKEN.encode() + TOKEN[: n % 25].encode() for n in range(60))
    credential = Credential("index", "", write=False, secrets=[TOKEN.encode()])

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), size):
            yield body[at : at + size]

    hidden = b"".join([each async for each in credential.hidden_in(pieces())])
    assert hidden == body.replace(TOKEN.encode(), b"*" * len(TOKEN))


@pytest.mark.parametrize("path", ["/a/b", "/a//b", "/@scope%2fname", "/a%20b/c~1.2+x", "/%E2%82%AC", "/a/.b/..c", "/"])
def test_a_usual_path_leads_nowhere_else(path: str) -> None:
    assert not may_lead_elsewhere(path)


def settings(tmp_path: Path, **sandbox: Any) -> Settings:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    table = {"host": HOST, "token_file": tmp_path / "token"}
    return Settings.load(environ={}, credentials={"index": table}, sandbox=sandbox)


def test_only_a_sandbox_that_reaches_the_host_has_the_credential(tmp_path: Path) -> None:
    by_hosts = {"*.test": True, HOST: True, "*": True, "other.test": False}
    for host, expected in by_hosts.items():
        reach = reach_of(settings(tmp_path, allowed_hosts=[host]), "allowed_hosts")
        assert reach
        assert (reach.credentials is not None, reach.trusted != b"") == (expected, expected)
    set_up = reach_of(settings(tmp_path, setup_hosts=[HOST], allowed_hosts=["other.test"]), "setup_hosts")
    assert set_up
    assert set_up.credentials


async def test_commands_trust_what_they_did_and_the_authority_of_their_run_alone(tmp_path: Path) -> None:
    async with edge(tmp_path) as one, edge(tmp_path) as other:
        assert one.proxy.trusted.endswith(system_authorities())
        own = [each.proxy.trusted.removesuffix(system_authorities()) for each in (one, other)]
        assert [each.count(b"BEGIN CERTIFICATE") for each in own] == [1, 1]
        with pytest.raises(ssl.SSLError):
            await Edge(one.address, other.proxy, one.network).get("/allowed/x")
