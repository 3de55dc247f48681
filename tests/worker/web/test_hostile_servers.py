"""Servers that mean no good, over real connections: each ends in an answer, bounded in time and size."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Awaitable, Callable

import pytest

from deputize.shared.errors import ErrorType, ToolError
from deputize.shared.settings import ToolSettings
from deputize.worker.tools.base import ToolResult
from deputize.worker.tools.web_fetch import WebFetch
from deputize.worker.web.fetch import MAX_BODY_BYTES, MAX_CHUNKS
from tests.network.internet import redirect, response
from tests.runs.toolbench import Toolbench
from tests.worker.web.servers import Talk, dripping, falling_silent, saying, saying_for_ever, serving

SOON = 0.5
"""The time limit in tests that are about reaching it."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
Fetch = Callable[..., Awaitable[ToolResult]]


@pytest.fixture
def fetch(bare_desk: Toolbench) -> Fetch:
    """Fetches ``/`` from a server that talks so, with the real network. Returns what the loop would get."""

    async def fetched(talk: Talk, *, seconds: float = 15) -> ToolResult:
        async with serving(talk) as at:
            tool = WebFetch(ToolSettings(private_hosts=[at]), seconds=seconds)
            try:
                return await tool.run(bare_desk.context(), tool.parse({"url": f"http://{at}/"}))
            except ToolError as error:
                return ToolResult.failed(error)

    return fetched


def packed(body: bytes, encoding: str) -> bytes:
    return response(body, "text/plain", Content_Encoding=encoding)


def zeros(mebibytes: int) -> bytes:
    """A gzip stream of so many MiB of zeros, which is a thousandth as long."""
    pack = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(pack.compress(bytes(1024 * 1024)) for _ in range(mebibytes)) + pack.flush()


def letters(mebibytes: int) -> bytes:
    return gzip.compress(b"a" * 1024 * 1024 * mebibytes)


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip"])
async def test_packed_bodies_are_unpacked(fetch: Fetch, encoding: str) -> None:
    text = "läuft ".encode() * 10_000
    body = gzip.compress(text[:1000]) + gzip.compress(text[1000:])
    result = await fetch(saying(packed(body, encoding)))
    assert result.content == text.decode()


async def test_a_bomb_is_cut_at_the_cap_and_the_rest_never_unpacked(fetch: Fetch) -> None:
    result = await fetch(saying(packed(letters(200), "gzip")))
    assert result.content.startswith("[This is only the beginning of http://localhost:")
    assert result.content.count("a" * 1000) == MAX_BODY_BYTES // 1000
    assert (result.metadata["chars"], result.metadata["cut"]) == (MAX_BODY_BYTES, True)


async def test_a_bomb_of_zeros_is_no_text(fetch: Fetch) -> None:
    result = await fetch(saying(packed(zeros(100), "gzip")))
    assert result.error_type is ErrorType.NOT_TEXT
    assert (result.error or "").endswith(
        "/ is not text: it is text/plain, more than 2 MiB. Look for a page that describes it instead."
    )


async def test_a_body_that_packs_nothing_does_not_go_on_for_ever(fetch: Fetch) -> None:
    nothing = zlib.compressobj(wbits=31)
    start = nothing.compress(b"x") + nothing.flush(zlib.Z_FULL_FLUSH)
    empty = (nothing.compress(b"") + nothing.flush(zlib.Z_FULL_FLUSH)) or b"\x00\x00\x00\xff\xff"
    result = await fetch(saying_for_ever(HEAD + b"Content-Encoding: gzip\r\n\r\n" + start, empty * 4096))
    assert (result.metadata["chars"], result.metadata["cut"]) == (1, True)


async def test_a_body_without_end_is_cut_at_the_cap(fetch: Fetch) -> None:
    result = await fetch(saying_for_ever(HEAD + b"\r\n", b"word " * 10_000))
    assert (result.metadata["chars"], result.metadata["cut"]) == (MAX_BODY_BYTES, True)


async def test_chunks_without_end_are_cut_at_the_cap(fetch: Fetch) -> None:
    result = await fetch(saying_for_ever(CHUNKED, b"2710\r\n" + b"x" * 10_000 + b"\r\n"))
    assert result.metadata["cut"]


async def test_chunks_of_a_letter_each_are_not_taken_for_ever(fetch: Fetch) -> None:
    result = await fetch(saying_for_ever(CHUNKED, b"1\r\nx\r\n" * 10_000))
    assert (result.metadata["chars"], result.metadata["cut"]) == (MAX_CHUNKS + 1, True)


async def test_a_type_or_a_redirect_of_enormous_length_is_not_repeated(fetch: Fetch) -> None:
    result = await fetch(saying(response("x", "text/" + "x" * 50_000)))
    assert len(result.metadata["contentType"]) == 100
    result = await fetch(saying(redirect("http://docs.example/" + "x" * 50_000)))
    assert result.error_type is ErrorType.PERMISSION_DENIED
    assert len(result.error or "") < 1000


@pytest.mark.parametrize(
    "talk",
    [
        falling_silent(b""),
        falling_silent(b"HTTP/1.1 200"),
        falling_silent(HEAD + b"Content-Length: 100\r\n\r\nhalf"),
        dripping(HEAD + b"Content-Length: 1000000\r\n\r\n", b"x"),
        dripping(b"HTTP/1.1 200 OK\r\n", b"X-Header: y\r\n"),
        dripping(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    ],
    ids=["silence", "half a head", "half a body", "drips of the body", "drips of the head", "hints"],
)
@pytest.mark.requirement("S001-045")
async def test_who_takes_too_long_is_left_at_the_time_limit(fetch: Fetch, talk: Talk) -> None:
    result = await fetch(talk, seconds=SOON)
    assert result.error_type is ErrorType.TIMEOUT
    assert result.error == (
        "request failed - there was no complete answer within 0.5 seconds. Try it once more, or use another source."
    )


@pytest.mark.requirement("S001-045")
def test_the_time_limit_is_fifteen_seconds() -> None:
    assert vars(WebFetch())["_seconds"] == 15


@pytest.mark.parametrize(
    ("talk", "why"),
    [
        (saying_for_ever(b"HTTP/1.1 200 OK\r\n", b"X-Header: y\r\n" * 1000), ""),
        (saying(HEAD + b"X-Long: " + b"x" * 1_000_000 + b"\r\n\r\nbody"), ""),
        (saying(HEAD + b"Content-Length: 100\r\n\r\nhalf"), "closed"),
        (saying(CHUNKED + b"5\r\nwhole\r\n"), "closed"),
        (saying(CHUNKED + b"zz\r\nwhole\r\n"), ""),
        (saying(b""), "disconnected"),
        (saying(b"SSH-2.0-OpenSSH_9.6\r\n"), ""),
        (saying(packed(gzip.compress(gzip.compress(b"x")), "gzip, gzip")), "compressed its response as 'gzip, gzip'"),
        (saying(packed(b"\x8b\x03\x80", "br")), "compressed its response as 'br', which was not requested"),
        (saying(packed(b"not packed at all", "gzip")), "gzip body is corrupt"),
        (saying(packed(gzip.compress(b"x" * 10_000)[:-20], "gzip")), "gzip body ended too early"),
    ],
    ids=[
        *("endless headers", "1 MB header", "early close", "chunks end early", "no chunk", "nothing", "no HTTP"),
        *("nested", "br", "not packed", "half packed"),
    ],
)
@pytest.mark.requirement("S001-047")
async def test_who_does_not_speak_properly_is_an_error_with_its_reason(fetch: Fetch, talk: Talk, why: str) -> None:
    result = await fetch(talk)
    assert result.error_type is ErrorType.EXECUTION_FAILED
    assert result.error is not None
    assert result.error.startswith("request failed - ")
    assert why in result.error
    assert "use another source" in result.error


async def test_what_a_server_sends_after_its_packed_body_is_ignored(fetch: Fetch) -> None:
    assert (await fetch(saying(packed(gzip.compress(b"page") + b"\0" * 512, "gzip")))).content == "page"


async def test_a_length_that_lies_small_is_taken_at_its_word(fetch: Fetch) -> None:
    assert (await fetch(saying(HEAD + b"Content-Length: 4\r\n\r\npage and more"))).content == "page"


async def test_a_missing_peer_is_an_error_with_its_reason(bare_desk: Toolbench) -> None:
    async with serving(saying(b"")) as at:
        pass  # its port is free again
    tool = WebFetch(ToolSettings(private_hosts=[at]))
    with pytest.raises(ToolError, match=r"^request failed - .+\. Check the address of http://localhost:\d+/;"):
        await tool.run(bare_desk.context(), tool.parse({"url": f"http://{at}/"}))


@pytest.mark.parametrize(
    ("location", "why"),
    [
        (
            "http://169.254.169.254/latest/meta-data/",
            "169.254.169.254 is not an allowed target: it is a cloud's metadata",
        ),
        ("http://127.0.0.1:6379/", "port 6379 must not be used"),
        ("http://[::1]/", "::1 is not an allowed target: it is a loopback address"),
        ("file:///etc/passwd", "only http:// and https://"),
        ("http://user:pw@localhost/", "must not contain a user name"),
        ("http://[::1", "not a valid URL"),
    ],
)
async def test_a_redirect_into_the_network_is_refused(fetch: Fetch, location: str, why: str) -> None:
    result = await fetch(saying(redirect(location)))
    assert result.error_type is ErrorType.PERMISSION_DENIED
    assert result.error is not None
    assert f"cannot be fetched: it redirects to {location!r}" in result.error
    assert why in result.error


async def test_redirects_that_never_end_are_left_after_five(fetch: Fetch) -> None:
    answers: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers.append(redirect("/again"))
        writer.write(answers[-1])

    result = await fetch(talk)
    assert len(answers) == 6
    assert (result.error or "").startswith("request failed - it redirects more than 5 times.")


async def test_a_cancelled_fetch_closes_its_connection(bare_desk: Toolbench) -> None:
    begun, closed = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: 100\r\n\r\nhalf")
        begun.set()
        assert await reader.read() == b""
        closed.set()

    async with serving(talk) as at:
        tool = WebFetch(ToolSettings(private_hosts=[at]))
        call = asyncio.create_task(tool.run(bare_desk.context(), tool.parse({"url": f"http://{at}/"})))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await closed.wait()
