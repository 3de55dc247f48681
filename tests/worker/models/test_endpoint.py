"""The client of the endpoint: proxies of the environment, and streams that are closed when they are not read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from anthropic import AsyncAnthropic
from pydantic import SecretStr

from deputize.shared.errors import ModelUnavailable
from deputize.shared.settings import Settings
from deputize.worker.models import close_models, open_model
from deputize.worker.models.anthropic import MAX_ERROR_BYTES, AnthropicModel
from deputize.worker.models.base import Reply, Retrying
from deputize.worker.models.credentials import Credentials
from deputize.worker.models.endpoint import Endpoint
from deputize.worker.models.retry import RetryPolicy
from tests.fake_model import FakeModel, Turn, refuse, stall, text
from tests.fake_model.sigv4 import verifier
from tests.waiting import until
from tests.worker.models.asking import MANY, model_at, model_of, parts_of, prompt_of, reply_of

DEAD = "127.0.0.1:9"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@dataclass
class Proxy:
    """A port that forwards plain requests, or answers each one with ``refusal``."""

    refusal: bytes = b""
    heads: list[bytes] = field(default_factory=list)
    address: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(head := await reader.readuntil(b"\r\n\r\n"))
        if self.refusal:
            writer.write(self.refusal)
            await writer.drain()
        else:
            await self._forward(head, reader, writer)
        writer.close()

    async def _forward(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = head.split(b" ")[1].removeprefix(b"http://").partition(b"/")[0].decode().partition(":")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        body = await reader.readexactly(int(length.partition(b":")[2]))
        upstream, sink = await asyncio.open_connection(host, int(port))
        path = b"/" + head.split(b" ")[1].removeprefix(b"http://").partition(b"/")[2]
        rest = head.partition(b"\r\n")[2].replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
        sink.write(b"POST " + path + b" HTTP/1.1\r\n" + rest + body)
        while data := await upstream.read(65536):
            writer.write(data)
        sink.close()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    proxy = Proxy()
    async with await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as server:
        proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield proxy


async def error_of(url: str) -> str:
    with pytest.raises(ModelUnavailable) as error:
        await reply_of(model_at(url), "hello")
    await close_models()
    return str(error.value)


async def test_an_answer_without_an_end_is_an_error_by_its_beginning() -> None:
    written, ended = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\n\r\nno such page")
        with suppress(ConnectionError):
            while written < 100 * MAX_ERROR_BYTES:
                writer.write(bytes(65536))
                written += 65536
                await writer.drain()
        writer.close()
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        assert "404" in await error_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await ended.wait()
    assert written < 50 * MAX_ERROR_BYTES


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY", "http_proxy"])
async def test_a_plain_endpoint_is_reached_through_the_proxy(
    fake: FakeModel, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    fake.script("", [Turn([text("done")])])
    monkeypatch.setenv(variable, f"http://{proxy.address}")
    model = model_of(fake)
    assert (await reply_of(model, "hello")).text == "done"
    assert len(proxy.heads) == 1


async def test_what_a_platform_signs_passes_a_proxy(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"AWS_ACCESS_KEY_ID": "AKIAFAKE", "AWS_SECRET_ACCESS_KEY": "secret-of-aws", "AWS_REGION": "eu-west-2"}
    for name, value in {**given, "HTTP_PROXY": f"http://{proxy.address}"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_BEARER_TOKEN_BEDROCK", "ANTHROPIC_AWS_API_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    signature = verifier("AKIAFAKE", "secret-of-aws", "eu-west-2", "bedrock-mantle")
    async with FakeModel([Turn([text("done")])], refuses=signature) as fake:
        table = {"rock": {"platform": "bedrock", "base_url": fake.url}}
        assert (await reply_of(open_model("rock", Settings.load(environ=given, models=table)), "hello")).text == "done"
        await close_models()
    assert len(proxy.heads) == 1


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY"])
async def test_a_tls_endpoint_is_asked_for_by_connect(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    proxy.refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"
    monkeypatch.setenv(variable, f"http://user:hidden@{proxy.address}")
    message = await error_of("https://model.example")
    assert f"through the proxy http://{proxy.address}: it answered 407" in message
    assert "password in HTTPS_PROXY" in message
    assert "hidden" not in message
    assert [head.split(b"\r\n")[0] for head in proxy.heads] == [b"CONNECT model.example:443 HTTP/1.1"]


async def test_a_plain_proxy_that_wants_a_password_is_named(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy.refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"
    monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.address}")
    assert "The proxy of HTTP_PROXY wants a user and password" in await error_of("http://model.example")


@pytest.mark.parametrize("address", [f"http://{DEAD}", DEAD, f"https://{DEAD}", "http://no.such.proxy.invalid:3128"])
@pytest.mark.parametrize("url", ["http://model.example", "https://model.example"])
async def test_a_dead_proxy_is_called_a_proxy(monkeypatch: pytest.MonkeyPatch, address: str, url: str) -> None:
    monkeypatch.setenv("ALL_PROXY", address)
    named = address if "://" in address else f"http://{address}"
    assert f"no connection to {url}/v1/messages through the proxy {named}" in await error_of(url)


async def test_what_answers_as_no_proxy_does_is_called_a_proxy(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy.refusal = b"\x05\xff"
    monkeypatch.setenv("ALL_PROXY", f"http://{proxy.address}")
    assert f"through the proxy http://{proxy.address} broke" in await error_of("https://model.example")


@pytest.mark.parametrize(
    "address",
    ["socks5://{}", "socks5h://user:hidden@{}", "socks4://{}", "ftp://{}", "http://", "http://127.0.0.1:99999"],
)
async def test_other_proxies_are_refused_before_anything_is_sent(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", address.format(proxy.address))
    message = await error_of("https://model.example")
    assert "misconfigured" in message
    assert "ALL_PROXY" in message
    assert "hidden" not in message
    assert proxy.heads == []


async def test_a_socks_proxy_is_refused_by_name_where_the_sdk_finds_the_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/default.json").write_text('{"authentication": {"type": "user_oauth"}}')
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    model = AnthropicModel("m", Credentials({"ANTHROPIC_BASE_URL": SecretStr("https://model.example")}))
    with pytest.raises(ModelUnavailable, match=r"socks5://127\.0\.0\.1:9 is not an HTTP proxy"):
        await reply_of(model, "hello")
    await close_models()


@pytest.mark.parametrize(
    ("url", "entries", "direct"),
    [
        *(("https://api.model.example", e, True) for e in ("*", "x, *", "model.example", "api.model.example:443")),
        *(("https://api.model.example", e, True) for e in (".model.example", "*.model.example", "API.Model.example")),
        *(("https://api.model.example", e, False) for e in ("", ",", "el.example", "api.model.example:80", "api")),
        *(("http://model.example:8080", e, False) for e in (".model.example", "*.model.example", "model.example:80")),
        *(("http://model.example:8080", e, True) for e in ("model.example:8080", "http://model.example", "all://*")),
        *(("http://model.example:8080", e, False) for e in ("https://model.example", "10.0.0.0/8")),
        *(("http://10.1.2.3", e, True) for e in ("10.1.2.3", "10.0.0.0/8")),
        ("http://10.1.2.3", "10.2.0.0/16", False),
        *(("http://[::1]:8080", e, True) for e in ("::1", "[::1]", "[::1]:8080")),
    ],
)
async def test_entries_of_no_proxy(monkeypatch: pytest.MonkeyPatch, url: str, entries: str, direct: bool) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", entries)
    variables = {"ANTHROPIC_API_KEY": SecretStr("k"), "ANTHROPIC_BASE_URL": SecretStr(url)}
    endpoint = Endpoint(Credentials(variables), RetryPolicy())
    await endpoint.aclose()
    assert (endpoint.route == endpoint.url) == direct


@pytest.mark.parametrize("excepted", ["127.0.0.1", "*", ""])
async def test_hosts_of_no_proxy_are_reached_directly(
    fake: FakeModel, monkeypatch: pytest.MonkeyPatch, excepted: str
) -> None:
    fake.script("", [Turn([text("done")])])
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", excepted or fake.url.removeprefix("http://"))
    model = model_of(fake)
    assert (await reply_of(model, "hello")).text == "done"


@pytest.mark.requirement("P-15")
async def test_cancelling_the_reader_closes_the_stream_at_once(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], faults=[stall(after=6)])])
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in model_of(fake).reply(prompt_of("hello")):
            begun.set()

    reading = asyncio.create_task(read())
    await asyncio.wait_for(begun.wait(), 30)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await until(lambda: fake.aborted == 1)
    assert fake.open == 0


async def test_cancelling_before_the_answer_begins_closes_the_connection(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], delay=30)])
    reading = asyncio.create_task(parts_of(model_of(fake), "hello"))
    await until(lambda: fake.open == 1)
    reading.cancel()
    await until(lambda: fake.aborted == 1)
    assert reading.cancelled()


async def test_closing_the_iterator_closes_the_stream_at_once(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], faults=[stall(after=6)])])
    async with aclosing(model_of(fake).reply(prompt_of("hello"))) as stream:
        await anext(stream)
    await until(lambda: fake.aborted == 1)
    assert fake.open == 0


async def test_cancelling_while_waiting_for_the_next_try_asks_no_more(fake: FakeModel) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(529)])])
    waiting = asyncio.Event()

    async def read() -> None:
        async for part in model_of(fake, RetryPolicy(first_delay=60, longest_delay=60)).reply(prompt_of("hello")):
            assert isinstance(part, Retrying)
            waiting.set()
            await part.wait()

    reading = asyncio.create_task(read())
    await asyncio.wait_for(waiting.wait(), 30)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert len(fake.journal) == 1


async def test_after_a_cancelled_stream_the_next_one_works(fake: FakeModel) -> None:
    fake.script("stall", [Turn([text(MANY)], faults=[stall(after=6)])])
    model = model_of(fake)
    async with aclosing(model.reply(prompt_of("stall"))) as stream:
        await anext(stream)
    assert (await reply_of(model, "hello")).text == "Hello from the fake model."


async def test_a_script_can_travel_inside_the_prompt(fake: FakeModel) -> None:
    script = {"turns": [{"blocks": [text("told")], "faults": [{"kind": "refuse", "status": 529}]}]}
    parts = await parts_of(model_of(fake), f"Do it. FAKE: {json.dumps(script)} And well.")
    assert isinstance(parts[0], Retrying)
    assert isinstance(parts[-1], Reply)
    assert parts[-1].text == "told"


async def test_the_headers_of_a_key_are_those_of_the_sdk(fake: FakeModel) -> None:
    """They are written here, so that a key costs no import of the SDK; its next version may send others."""
    await reply_of(model_of(fake), "hello")
    client = AsyncAnthropic(api_key=fake.key)
    wanted = {name.lower(): value for name, value in client.default_headers.items()}
    await client.close()
    names = ("authorization", "anthropic-version", "accept", "content-type")
    assert {name: fake.journal[0].headers[name] for name in names} == {name: wanted[name] for name in names}
