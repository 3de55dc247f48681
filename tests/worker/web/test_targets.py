"""Addresses that no one may be sent to, and URLs by their text."""

from __future__ import annotations

import json
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import ToolError
from deputize.worker.tools.base import ToolResult
from deputize.worker.tools.web_fetch import TIMEOUT_SECONDS, WebFetch
from deputize.worker.web.targets import CLOUD_METADATA, is_ours, refusal_reason
from tests.network.internet import Internet, redirect, response
from tests.runs.toolbench import Toolbench

PUBLIC = "1.1.1.1 9.255.255.255 11.0.0.0 93.184.215.14 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 "
PUBLIC += "172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 "
PUBLIC += "2606:2800:21f:cb07:6820:80da:af6b:8b2c 2001:200::1 2003::1 64:ff9b::5db8:d70e"
PRIVATE = "10.0.0.0 10.255.255.255 127.0.0.1 127.255.255.254 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 "
PRIVATE += "100.64.0.0 100.127.255.255 198.18.0.1 198.19.255.255 ::1 fc00::1 fdff::1"
NOBODYS = "0.0.0.0 0.255.255.255 169.254.0.1 169.254.169.254 169.254.170.2 168.63.129.16 100.100.100.200 192.0.0.1 "
NOBODYS += "192.0.2.1 198.51.100.1 203.0.113.1 192.88.99.1 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255 "
NOBODYS += ":: fe80::1 fe80::1%eth0 febf::1 fec0::1 ff02::1 2001:db8::1 3fff::1 2001::1 2001:0:7f00:1:: 2001:10::1 "
NOBODYS += "2001:20::1 2002:7f00:1:: 2002:5db8:d70e:: ::ffff:127.0.0.1 ::ffff:93.184.215.14 ::127.0.0.1 100::1 "
NOBODYS += "::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::a00:1 64:ff9b:1::7f00:1 fd00:ec2::254 "
NOBODYS += "fd20:ce::254 4000::1 5f00::1 2606:2800::1%eth0 1fff::1"


@pytest.mark.parametrize("text", PUBLIC.split())
def test_a_public_address_may_be_dialled(text: str) -> None:
    assert refusal_reason(ip_address(text)) is None


@pytest.mark.requirement("S003-040")
@pytest.mark.parametrize("text", PRIVATE.split())
def test_a_private_address_is_for_hosts_that_the_operator_names(text: str) -> None:
    assert refusal_reason(ip_address(text)) is not None
    assert refusal_reason(ip_address(text), private=True) is None


@pytest.mark.parametrize("text", NOBODYS.split())
def test_some_addresses_are_never_dialled(text: str) -> None:
    assert refusal_reason(ip_address(text)) is not None
    assert refusal_reason(ip_address(text), private=True) is not None


def test_the_reason_names_the_kind_of_address() -> None:
    said = {text: refusal_reason(ip_address(text)) for text in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "2002::1")}
    assert said == {
        "127.0.0.1": "a loopback address",
        "10.0.0.1": "a private address",
        "169.254.169.254": "a cloud's metadata address",
        "2002::1": "a relay's address",
    }


def test_metadata_addresses_are_refused_in_every_form_they_can_be_written_in() -> None:
    for address in CLOUD_METADATA:
        assert refusal_reason(address, private=True) == "a cloud's metadata address"
        if address.version == 4:
            assert refusal_reason(ip_address(f"64:ff9b::{address}")) == "a cloud's metadata address"


def test_the_machines_own_addresses_are_distinguished_from_others() -> None:
    assert is_ours(ip_address("127.0.0.1"))
    assert is_ours(ip_address("127.8.9.10"))
    assert not is_ours(ip_address("240.0.0.2"))
    assert not is_ours(ip_address("100::2"))


CORPUS = Path(__file__).parents[2] / "corpus" / "urls.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()]
SERVERS = {
    "drip": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\nx",
    "huge-header": b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1_000_000 + b"\r\nContent-Length: 2\r\n\r\nok",
    "br-bomb": response(b"\x8b\x03\x80" * 100, "text/plain", Content_Encoding="br"),
    "early-close": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\nhalf a page",
}


def internet(row: dict[str, Any]) -> Internet:
    """The row's names, redirects and server; whatever else is asked for is a page."""
    answers = [redirect(location) for location in row.get("redirects", [])]
    answers += [SERVERS[row["server"]]] if "server" in row else []

    def answer(host: str, path: str) -> bytes:
        return answers.pop(0) if answers else response("a page", "text/plain")

    return Internet(row["dns"], answer, hangs_up=row.get("server") == "early-close")


async def fetched(row: dict[str, Any], net: Internet, desk: Toolbench) -> ToolResult:
    seconds = 0.5 if row.get("server") == "drip" else TIMEOUT_SECONDS  # the row is about its end
    tool = WebFetch(network=net, seconds=seconds)
    try:
        return await tool.run(desk.context(), tool.parse({"url": row["url"]}))
    except ToolError as error:
        return ToolResult.failed(error)


@pytest.mark.requirement("S003-040", "S004-020")
@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
async def test_a_url_is_fetched_or_refused_as_the_corpus_states(row: dict[str, Any], bare_desk: Toolbench) -> None:
    net = internet(row)
    result = await fetched(row, net, bare_desk)
    if "dial" in row:  # a rebinding name: fine, as long as what was judged is what was dialled
        assert {address for address, _ in net.dialled} <= {row["dial"]}
        assert len(net.asked) == 1
        return
    assert result.success == (row["verdict"] == "allow"), result.for_model
    first_answers = {address for answers in row["dns"].values() for address in answers[0]}
    literal = {row["url"].split("/")[2]} if row["verdict"] == "allow" else set()
    assert {address for address, _ in net.dialled} <= first_answers | literal
    if row["verdict"] == "allow":
        assert result.content == "a page"
    elif "redirects" not in row and "server" not in row:
        assert net.dialled == []


def test_the_corpus_is_whole() -> None:
    assert len(ROWS) == 125
    assert {row["verdict"] for row in ROWS} == {"allow", "refuse"}
