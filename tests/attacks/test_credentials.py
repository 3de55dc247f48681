"""A run that may use a credential, and wants to have it, or to use it for what it is not for: at the proxy itself.

| attacks | how many | leaks |
|---|---|---|
| paths that a server reads as others | 17 | 0 |
| messages that two servers read in two ways | 18 | 0 |
| methods, and headers that name another one or another path | 8 | 0 |
| other places: names, addresses, ports, other schemes | 15 | 0 |
| names that move, and servers without a proof of their name | 5 | 0 |
| redirects | 3 | 0 |
| answers that hold the token, or what replaces it | 15 | 0 |

After each one the token is looked for, as it is and in base64, in all that the run, its caller, other servers and the
log get.
`test_credentials_in_runs.py` has those of commands in a sandbox.
"""

from __future__ import annotations

import gzip
import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.log import masked
from tests.network.internet import PUBLIC, redirect, response
from tests.worker.web.edge import HOST, TOKEN, credentials_of, echo, edge, leaks

WITHOUT, REFUSED = "reached", " 403 "
PATHS: Mapping[str, tuple[str, str]] = {
    "a step up": ("/allowed/../private", REFUSED),
    "a step up at the end": ("/allowed/..", REFUSED),
    "an encoded step up": ("/allowed/%2e%2e/private", REFUSED),
    "a half encoded step up": ("/allowed/.%2E/private", REFUSED),
    "a step up, encoded twice": ("/allowed/%252e%252e/private", REFUSED),
    "an encoded slash": ("/allowed/..%2fprivate", REFUSED),
    "an encoded backslash": ("/allowed/..%5cprivate", REFUSED),
    "a backslash": ("/allowed/..\\private", REFUSED),
    "a parameter": ("/allowed/..;a=b/private", REFUSED),
    "an overlong encoding": ("/allowed/%c0%ae%c0%ae/private", REFUSED),
    "full-width dots": ("/allowed/%ef%bc%8e%ef%bc%8e/private", REFUSED),
    "another escape": ("/allowed/%u002e%u002e/private", REFUSED),
    "an encoded NUL": ("/allowed/..%00/private", REFUSED),
    "two slashes": ("//allowed/x", WITHOUT),
    "upper case": ("/ALLOWED/x", WITHOUT),
    "another name": ("/allowed-private/x", WITHOUT),
    "an encoded letter": ("/%61llowed/x", WITHOUT),
}
"""What is asked for, and what comes of it: no credential, or no request at all."""


@pytest.mark.parametrize("attack", PATHS)
async def test_a_path_gets_a_credential_only_below_its_own(attack: str, tmp_path: Path) -> None:
    path, outcome = PATHS[attack]
    async with edge(tmp_path) as edged:
        answer = (await edged.get(path)).decode()
        assert outcome in answer
        assert credentials_of(edged.heads) == 0
        assert len(edged.heads) == (outcome == WITHOUT)
        assert TOKEN.encode() not in await edged.get("/allowed/x?a=../..")
        assert credentials_of(edged.heads) == 1
        assert leaks(answer, edged.everything) == []


MESSAGES: Mapping[str, tuple[str, str]] = {
    "a whole URL": ("GET https://good.test/allowed/x HTTP/1.1\r\nHost: good.test\r\n\r\n", " 400 "),
    "a whole URL of another host": ("GET https://other.test/allowed/x HTTP/1.1\r\nHost: good.test\r\n\r\n", " 400 "),
    "another Host": ("GET /allowed/x HTTP/1.1\r\nHost: other.test\r\n\r\n", " 400 "),
    "another port in Host": ("GET /allowed/x HTTP/1.1\r\nHost: good.test:8443\r\n\r\n", " 400 "),
    "two Hosts": ("GET /allowed/x HTTP/1.1\r\nHost: good.test\r\nHost: other.test\r\n\r\n", " 400 "),
    "no Host": ("GET /allowed/x HTTP/1.1\r\n\r\n", " 400 "),
    "two framings": (
        "GET /allowed/x HTTP/1.1\r\nHost: good.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        " 400 ",
    ),
    "two lengths": (
        "GET /allowed/x HTTP/1.1\r\nHost: good.test\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        " 400 ",
    ),
    "a framing in two parts": (
        "GET /allowed/x HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        " 400 ",
    ),
    "a blank before the colon": ("GET /allowed/x HTTP/1.1\r\nHost: good.test\r\nA : b\r\n\r\n", " 400 "),
    "a bare line end in a header": ("GET /allowed/x HTTP/1.1\r\nHost: good.test\r\nA: b\rB: c\r\n\r\n", " 400 "),
    "a header in the path": ("GET /allowed/x\rA:b HTTP/1.1\r\nHost: good.test\r\n\r\n", " 400 "),
    "an encoded header in the path": ("GET /allowed/x%0d%0aA:%20b HTTP/1.1\r\nHost: good.test\r\n\r\n", " 403 "),
    "a fragment": ("GET /allowed/x#/../.. HTTP/1.1\r\nHost: good.test\r\n\r\n", " 400 "),
    "HTTP/2": ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", " 400 "),
    "a websocket": (
        "GET /allowed/x HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        " 403 ",
    ),
    "a tunnel inside the tunnel": ("CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n", " 400 "),
    "the server's options": ("OPTIONS * HTTP/1.1\r\nHost: good.test\r\n\r\n", " 400 "),
}
"""What is sent inside TLS, and the answer: none of it reaches a server."""


@pytest.mark.parametrize("attack", MESSAGES)
async def test_a_message_that_can_be_read_in_two_ways_reaches_no_server(attack: str, tmp_path: Path) -> None:
    message, status = MESSAGES[attack]
    async with edge(tmp_path) as edged:
        answer = await edged.ask(message.encode())
        assert status.encode() in answer.split(b"\r\n")[0] + b" "
        assert edged.heads == []
        assert leaks(answer, edged.everything) == []


METHODS: Mapping[str, tuple[str, ...]] = {
    "TRACE": (),
    "TRACK": (),
    "POST": ("Content-Length: 0",),
    "DELETE": (),
    "get": (),
    "GET": ("X-HTTP-Method-Override: DELETE",),
    "HEAD": ("X_HTTP_METHOD: PUT",),
    "OPTIONS": ("X-Original-URL: /private",),
}
"""Methods that a credential for reading is not for, with header lines."""


@pytest.mark.parametrize("method", METHODS)
async def test_a_credential_for_reading_is_for_no_other_method(method: str, tmp_path: Path) -> None:
    async with edge(tmp_path) as edged:
        answer = await edged.get("/allowed/x", *METHODS[method], method=method)
        assert answer.split()[1] == b"403"
        assert edged.heads == []
        assert len(edged.refused) == 1
        assert leaks(answer, edged.everything) == []


PLACES: Mapping[str, tuple[dict[str, Any], str]] = {
    "the address": ({"connect": f"{PUBLIC}:443"}, " 403 "),
    "an address of this machine": ({"connect": "127.0.0.1:443"}, " 403 "),
    "an address in IPv6": ({"connect": "[::ffff:127.0.0.1]:443"}, " 403 "),
    "a name that looks alike": ({"connect": "g\u043e\u043ed.test:443"}, " 40"),
    "a name that looks alike, in ASCII": ({"connect": "xn--gd-jbba.test:443"}, " 502 "),
    "another name in TLS": ({"name": "other.test"}, ""),
    "a name below": ({"connect": "a.good.test:443"}, " 502 "),
    "a name above": ({"connect": "good.test.other.example:443"}, " 403 "),
    "a user in the target": ({"connect": "good.test@other.test:443"}, " 400 "),
    "another port": ({"connect": "good.test:8443"}, " 403 "),
    "another port that is open": ({"connect": "good.test:8443"}, ""),
    "port 80 in a tunnel": ({"connect": "good.test:80"}, " 403 "),
}
"""How a tunnel is asked for, and what comes of it."""


@pytest.mark.parametrize("attack", PLACES)
async def test_no_other_place_gets_the_credential(attack: str, tmp_path: Path) -> None:
    way, status = PLACES[attack]
    private = ["good.test:8443"] if "open" in attack else ()
    async with edge(tmp_path, private=private) as edged:
        try:
            answer = await edged.get("/allowed/x", **way)
        except (ssl.SSLError, ConnectionError):
            answer = b""
        assert status in answer.decode()
        assert credentials_of([*edged.heads, *edged.elsewhere]) == 0
        assert leaks(answer, edged.everything) == []


OUTSIDE: Mapping[str, str] = {
    "http://good.test/allowed/x": "403 good.test has credentials, which are sent over TLS only",
    "http://good.test:443/allowed/x": "403 port 443 must not be used for http",
    "https://good.test/allowed/x": "400 this is a proxy: it needs a whole http:// URL, or CONNECT",
}
"""What the proxy is asked for without a tunnel, and the answer."""


@pytest.mark.parametrize("url", OUTSIDE)
async def test_without_tls_nothing_is_sent_to_the_host(url: str, tmp_path: Path) -> None:
    async with edge(tmp_path) as edged:
        answer = await edged.raw(f"GET {url} HTTP/1.1\r\nHost: good.test\r\n\r\n".encode())
    assert OUTSIDE[url] in answer.decode()
    assert (edged.heads, edged.elsewhere) == ([], [])


MOVING = ([[PUBLIC], ["10.0.0.5"]], [["10.0.0.5"]], [[PUBLIC, "169.254.169.254"]])
"""The answers to one look-up of the host after the other."""


@pytest.mark.parametrize("answers", MOVING)
async def test_a_name_that_moves_to_a_private_address_gets_nothing(answers: Any, tmp_path: Path) -> None:
    async with edge(tmp_path, names={HOST: answers}) as edged:
        told = [await edged.get("/allowed/x") for _ in range(2)]
        assert b"403 good.test is not an allowed target" in told[1]
        assert credentials_of(edged.heads) == len(answers) - 1
        assert leaks(*told, edged.everything) == []


CERTIFIED = ("other.test", "a.good.test")


@pytest.mark.parametrize("certified", CERTIFIED)
async def test_a_server_that_cannot_prove_its_name_gets_nothing(certified: str, tmp_path: Path) -> None:
    async with edge(tmp_path, certified=certified) as edged:
        answer = await edged.get("/allowed/x")
        assert b" 502 " in answer
        assert b"certificate verify failed" in answer
        assert edged.heads == []
        assert leaks(answer, edged.everything) == []


REDIRECTS = ("http://other.test/allowed/x", "http://good.test/allowed/x", "https://good.test:8443/allowed/x")


@pytest.mark.parametrize("location", REDIRECTS)
async def test_a_redirect_is_the_clients_own_to_follow(location: str, tmp_path: Path) -> None:
    async with edge(tmp_path, lambda head: redirect(location)) as edged:
        answer = await edged.get("/allowed/x")
        assert f"Location: {location}".encode() in answer
        followed = await edged.raw(f"GET {location} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert credentials_of(edged.heads) == 1
        assert len(edged.elsewhere) == ("other" in location)
        assert leaks(answer, followed, edged.everything) == []


def in_pieces(head: str) -> bytes:
    token = head.split("Bearer ")[1].split("\r\n")[0]
    pieces = "".join(f"{len(each):x}\r\n{each}\r\n" for each in ("a", token[:5], token[5:20], token[20:], "z"))
    return f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{pieces}0\r\n\r\n".encode()


def compressed(head: str) -> bytes:
    return response(gzip.compress(head.encode()), Content_Encoding="gzip")


def a_part(head: str) -> bytes:
    found = re.search(r"range: bytes=(\d+)-(\d+)", head.lower())
    return response(TOKEN[int(found[1]) : int(found[2])] if found else TOKEN, "text/plain")


def exactly(status: str, *lines: str, body: str = "ok") -> Any:
    """An answer of these lines, whatever is asked."""
    text = "\r\n".join([f"HTTP/1.1 {status}", *lines, "", body])
    return lambda head: text.encode()


HINT = f"103 Early Hints\r\nLink: </{TOKEN}>\r\nSet-Cookie: session=a\r\n\r\nHTTP/1.1 200 OK"
CHUNKS = f"2;a={TOKEN}\r\nok\r\n0\r\nX-Echo: {TOKEN}\r\nSet-Cookie: session=a\r\n\r\n"
ANSWERS: Mapping[str, tuple[Any, Sequence[str], str]] = {
    "all headers": (echo, (), f"Bearer {'*' * len(TOKEN)}"),
    "in pieces": (in_pieces, (), f"{'*' * len(TOKEN)}"),
    "compressed": (compressed, ("Accept-Encoding: gzip",), " 502 the host compresses"),
    "a part": (a_part, ("Range: bytes=0-9",), "*" * len(TOKEN)),
    "a part that is newer": (a_part, ("Range: bytes=0-9", 'If-Range: "a"'), "*" * len(TOKEN)),
    "in an address": (lambda head: redirect(f"https://u:{TOKEN}@other.test/"), (), "*" * len(TOKEN)),
    "a session": (lambda head: response("x", Set_Cookie="session=abc"), (), "200"),
    "nothing new": (lambda head: b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", ('If-None-Match: "x"',), "304"),
    "a name of a header": (exactly("200 OK", f"X-{TOKEN}: a", "Content-Length: 2"), (), f"X-{'*' * len(TOKEN)}: a"),
    "the words of a status": (exactly(f"200 {TOKEN}", "Content-Length: 2"), (), "ok"),
    "an answer before the answer": (exactly(HINT, "Content-Length: 2"), (), "ok"),
    "beside the chunks": (exactly("200 OK", "Transfer-Encoding: chunked", body=CHUNKS), (), "ok"),
    "another protocol": (exactly("101 Go on", "Connection: upgrade", "Upgrade: a", body=TOKEN), (), " 502 "),
    "a wrong header": (
        exactly("200 OK", f"X-Echo: {TOKEN}\0", "Content-Length: 2"),
        (),
        "502 the host's answer is not",
    ),
    "a wrong answer": (lambda head: f"HTTP/9 {head}".encode(), (), " 502 "),
}
"""What a server answers, header lines of the request, and what the client gets."""


@pytest.mark.parametrize("attack", ANSWERS)
async def test_an_answer_has_stars_in_place_of_the_token(
    attack: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")  # at which libraries log what they receive
    answer, lines, expected = ANSWERS[attack]
    async with edge(tmp_path, answer) as edged:
        told = (await edged.get("/allowed/x", *lines)).decode("latin-1")
        whole = re.sub("\r\n[0-9a-f]+\r\n", "", told.partition("\r\n\r\n")[2])  # without the marks of its chunks
        assert expected in told + whole
        assert "session" not in told
        assert credentials_of(edged.heads) == 1
        assert "accept-encoding: identity" in edged.heads[0].lower()
        assert leaks(told, whole, edged.everything, masked(caplog.text)) == []
        assert not re.search(rf"{TOKEN[:8]}|{TOKEN[-8:]}", told + whole)


async def test_a_users_own_header_is_replaced_however_it_is_written(tmp_path: Path) -> None:
    lines = ("Authorization: Basic own", "AUTHORIZATION: own", "Private_Token: own", "PRIVATE-TOKEN:\r\n own")
    async with edge(tmp_path, header="Private-Token") as edged:
        await edged.get("/allowed/x", *lines, "Connection: close, Private-Token", "Via: kept")
        assert f"Private-Token: {TOKEN}\r\n" in edged.heads[0]
        assert "own" not in edged.heads[0]
        assert "kept" in edged.heads[0]


def test_the_table_counts_all_attacks() -> None:
    rows = [line.split("|")[2:4] for line in (__doc__ or "").splitlines() if line.startswith("| ")][1:]
    sizes = [PATHS, MESSAGES, METHODS, [*PLACES, *OUTSIDE], [*MOVING, *CERTIFIED], REDIRECTS, ANSWERS]
    assert [int(number) for number, _ in rows] == [*map(len, sizes)]
    assert {int(leaked) for _, leaked in rows} == {0}
