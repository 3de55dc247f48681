"""The adapter for the Messages API: endpoints that fail in every way, and the price table."""

from __future__ import annotations

import asyncio
import json
import ssl
from datetime import UTC, date, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from pydantic import SecretStr

from deputize.shared.delegation import Usage
from deputize.shared.errors import ContextFull, ModelUnavailable
from deputize.shared.settings import Settings
from deputize.worker.core.conversation import Conversation
from deputize.worker.models import close_models, open_model
from deputize.worker.models.anthropic import AnthropicModel, price_of
from deputize.worker.models.base import Price, Reply
from deputize.worker.models.credentials import Credentials
from tests.fake_model import FakeModel, Fault, Turn, call, refuse, text
from tests.worker.models.asking import IMPATIENT, model_at, model_of, parts_of, prompt_of, reply_of


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"x" * 100_000])
async def test_an_endpoint_that_does_not_speak_http_is_reported(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ModelUnavailable, match=f"{url}/v1/messages .*after 6 tries.*ANTHROPIC_BASE_URL"):
            await parts_of(model_at(url), "hello")
        await close_models()


SPENT = {"details": {"error_code": "enforced_spend_limit_reached"}}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (refuse(400), "DEPUTIZE_MODEL (claude-sonnet-5-5)"),
        (refuse(401), "ANTHROPIC_API_KEY"),
        (refuse(402), "console"),
        (refuse(403), "permissions"),
        (refuse(404), "ANTHROPIC_BASE_URL"),
        (refuse(413), "less context"),
        (refuse(418), "DEPUTIZE_MODEL"),
        (refuse(429, error=SPENT), "spend limit"),
        (refuse(429, error=SPENT, x_should_retry="true"), "spend limit"),
        (refuse(529, x_should_retry="false"), "HTTP 529"),
    ],
)
async def test_what_would_be_refused_again_is_not_asked_again(fake: FakeModel, fault: Fault, words: str) -> None:
    fake.script("", [Turn([text("x")], faults=[fault])])
    with pytest.raises(ModelUnavailable) as error:
        await parts_of(model_of(fake), "hello")
    assert words in str(error.value)
    assert len(fake.journal) == 1


@pytest.mark.requirement("P-21")
@pytest.mark.parametrize(
    ("fault", "too_long"),
    [
        (refuse(400, error={"message": "prompt is too long: 210000 tokens > 200000 maximum"}), True),
        (refuse(400, error={"message": "This model's maximum context length is 32768 tokens"}), True),
        (refuse(413), True),
        (refuse(400, error={"message": "max_tokens: must be at least 1"}), False),
    ],
)
async def test_a_conversation_that_is_too_long_is_recognized(fake: FakeModel, fault: Fault, too_long: bool) -> None:
    fake.script("", [Turn([text("x")], faults=[fault])])
    with pytest.raises(ModelUnavailable) as error:
        await parts_of(model_of(fake), "hello")
    assert isinstance(error.value, ContextFull) == too_long


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("claude-sonnet-5-5", 1_000_000), ("claude-opus-5", 1_000_000), ("claude-haiku-4-5", 200_000), ("m", 128_000)],
)
def test_a_models_window_is_known_by_its_name(name: str, tokens: int) -> None:
    assert AnthropicModel(name, Credentials({})).window() == tokens


async def test_a_wrong_key_is_never_repeated_in_the_message(fake: FakeModel) -> None:
    """This endpoint quotes the key it refuses."""
    with pytest.raises(ModelUnavailable) as error:
        await parts_of(model_at(fake.url, "sk-very-secret"), "hello")
    assert "sk-very-secret" not in str(error.value)
    assert "'***'" in str(error.value)


def test_the_password_in_an_address_is_never_repeated_in_a_message() -> None:
    credentials = Credentials({"ANTHROPIC_BASE_URL": SecretStr("https://deputy:pass-word-9@models.test/v1")})
    assert credentials.masked("deputy:pass-word-9@models.test is down") == "***@models.test is down"


async def test_a_key_with_a_line_end_is_explained_without_quoting_it(fake: FakeModel) -> None:
    with pytest.raises(ModelUnavailable, match="line ends") as error:
        await parts_of(model_at(fake.url, "sk-very\nsecret"), "hello")
    assert "secret" not in str(error.value)


async def test_without_a_key_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(ModelUnavailable, match="Set ANTHROPIC_API_KEY"):
        await parts_of(AnthropicModel("m", Credentials({}), IMPATIENT), "hello")
    await close_models()


async def test_a_profile_of_the_sdk_signs_requests(
    fake: FakeModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    for kind, content in (
        ("configs", {"authentication": {"type": "user_oauth"}}),
        ("credentials", {"access_token": fake.key}),
    ):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "default.json").write_text(json.dumps(content))
        (tmp_path / kind / "default.json").chmod(0o600)
    model = AnthropicModel("m", Credentials({"ANTHROPIC_BASE_URL": SecretStr(fake.url)}), IMPATIENT)
    assert (await reply_of(model, "hello")).text == "Hello from the fake model."
    (tmp_path / "credentials" / "default.json").unlink()
    await close_models()
    with pytest.raises(ModelUnavailable, match="no credentials for"):
        await parts_of(model, "hello")


async def test_a_user_and_a_password_in_the_address_are_sent_as_basic_authorization() -> None:
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://deputy:pass-word-9@127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        endpoint = {
            "ANTHROPIC_API_KEY": SecretStr("sk-key-x"),
            "ANTHROPIC_BASE_URL": SecretStr(url),
            "ANTHROPIC_CUSTOM_HEADERS": SecretStr("X-Team: red\nUser-Agent: mine"),
        }
        with pytest.raises(ModelUnavailable) as error:
            await parts_of(AnthropicModel("m", Credentials(endpoint), IMPATIENT), "hello")
        await close_models()
    assert "pass-word-9" not in str(error.value)
    (head,) = (head.decode().lower() for head in heads)
    assert head.startswith("post /v1/v1/messages http/1.1\r\n")
    for line in ("authorization: basic zgvwdxr5onbhc3mtd29yzc05", "x-team: red", "user-agent: mine"):
        assert f"\r\n{line}\r\n" in head
    assert "\r\nanthropic-version: " in head


async def test_a_certificate_of_an_unknown_authority_is_reported(tmp_path: Path) -> None:
    async with FakeModel(tls=self_signed(tmp_path)) as fake:
        with pytest.raises(ModelUnavailable, match=f"certificate of {fake.url}.* is not trusted"):
            await parts_of(model_of(fake), "hello")
        await close_models()


async def test_an_endpoint_without_the_messages_api_is_reported(fake: FakeModel) -> None:
    with pytest.raises(ModelUnavailable, match="not a Messages API"):
        await parts_of(model_at(f"{fake.url}/fake", fake.key), "hello")


@pytest.mark.parametrize("url", ["ftp://model.invalid", "http://", "not a url"])
async def test_a_url_that_cannot_be_used_is_reported(url: str) -> None:
    with pytest.raises(ModelUnavailable):
        await parts_of(model_at(url), "hello")
    await close_models()


async def test_the_reason_of_a_conversation_the_api_refuses_is_reported(fake: FakeModel) -> None:
    history = Conversation()
    history.ask("hello")
    history.add(Reply([call("read_file", path="a")], "tool_use", Usage()))
    history.ask("no answer to the call")
    with pytest.raises(ModelUnavailable, match="tool_use ids without tool_result"):
        await parts_of(model_of(fake), prompt_of(history.messages))


def self_signed(folder: Path) -> ssl.SSLContext:
    """A server's TLS whose certificate only it believes in."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake model")])
    today = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, today, today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "server.pem").write_bytes(certificate.public_bytes(Encoding.PEM) + pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context


NOVEMBER = date(2026, 11, 21)


def known_price(model: str, day: date = NOVEMBER) -> Price:
    price = price_of(model, day)
    assert price is not None
    return price


def test_a_model_costs_the_providers_price_of_that_day() -> None:
    assert known_price("claude-sonnet-5-5") == Price(input=2, output=10, cache_read=0.1, cache_write=2.5)
    days = [known_price("claude-sonnet-5-5", date(2026, 10, day)).cache_read for day in (6, 7)]
    assert days == [0.2, 0.1]
    assert price_of("claude-haiku-5-5", date(2026, 1, 1)) is None


def test_a_dated_name_is_the_model_without_its_date() -> None:
    assert known_price("claude-haiku-4-5-20251001") == known_price("claude-haiku-4-5")


@pytest.mark.parametrize("name", ["", "gpt-6", "claude-sonnet-5-5-fast", "claude-sonnet", "scripted"])
def test_an_unknown_model_has_no_price(name: str) -> None:
    assert price_of(name, NOVEMBER) is None


HOUR = Usage(input_tokens=10, cache_read_tokens=100, cache_write_tokens=1000, cache_write_1h_tokens=400)


@pytest.mark.parametrize(
    ("model", "usage", "dollars"),
    [
        ("claude-haiku-5-5", Usage(input_tokens=100_000, output_tokens=1000), 0.0105),
        # above the band the whole request costs more
        ("claude-haiku-5-5", Usage(input_tokens=100_001, output_tokens=1000), 0.0525005),
        ("claude-haiku-5-5", Usage(input_tokens=1, cache_read_tokens=60_000, cache_write_tokens=39_999), 0.005599975),
        ("claude-haiku-5-5", Usage(input_tokens=1, cache_read_tokens=60_000, cache_write_tokens=40_000), 0.0280005),
        (
            "claude-haiku-5-5",
            Usage(cache_write_tokens=100_001, cache_write_1h_tokens=100_001),
            100_001 * 2 * 0.5 / 1e6,
        ),
    ],
)
def test_a_request_costs_by_its_rates_and_its_band(model: str, usage: Usage, dollars: float) -> None:
    assert known_price(model).cost(usage) == pytest.approx(dollars)


@pytest.mark.parametrize("model", ["claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-4-5"])
def test_what_is_kept_for_an_hour_costs_twice_the_input(model: str) -> None:
    price = known_price(model)
    assert price.cache_write_1h == 2 * price.input
    expected = 10 * price.input + 100 * price.cache_read + 600 * price.cache_write + 400 * 2 * price.input
    assert price.cost(HOUR) == pytest.approx(expected / 1e6)


@pytest.mark.parametrize(
    ("model", "usage", "dollars"),
    [
        ("claude-sonnet-5-5", Usage(input_tokens=1000, output_tokens=1000), 0),
        ("claude-sonnet-5-5", Usage(cache_read_tokens=1000), 1.9e-3),
        ("claude-sonnet-5-5", Usage(cache_write_tokens=1000), -0.5e-3),
        ("claude-sonnet-5-5", Usage(cache_write_tokens=1000, cache_write_1h_tokens=1000), -2e-3),
        ("claude-sonnet-5-5", HOUR, (100 * 1.9 - 600 * 0.5 - 400 * 2) / 1e6),
        ("claude-haiku-5-5", Usage(cache_read_tokens=100_001), 100_001 * 0.45 / 1e6),  # above the band
    ],
)
def test_caching_saved_what_the_tokens_would_have_cost_more_without_it(
    model: str, usage: Usage, dollars: float
) -> None:
    price = known_price(model)
    assert price.cache_saved(usage) == pytest.approx(dollars)
    plain = usage.model_copy(update=dict.fromkeys(("cache_read_tokens", "cache_write_tokens"), 0))
    plain = plain.model_copy(update={"cache_write_1h_tokens": 0, "input_tokens": usage.total - usage.output_tokens})
    assert price.cost(plain) - price.cost(usage) == pytest.approx(dollars)


def test_the_table_is_read_once_so_that_an_upgrade_does_not_reach_a_running_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert price_of("claude-haiku-5-5", date(2030, 1, 1))
    monkeypatch.setattr(json, "loads", None)
    assert price_of("claude-haiku-5-5", date(2030, 1, 2)) == price_of("claude-haiku-5-5", date(2030, 1, 1))


def test_the_default_model_has_a_price() -> None:
    assert price_of(Settings().model) is not None


def test_a_price_of_the_settings_comes_first_and_caches_nothing_unsaid() -> None:
    said = '{"house": {"input": 1, "output": 5}, "claude-sonnet-5-5": {"input": 9, "output": 9, "cache_read": 0}}'
    settings = Settings.load(environ={"DEPUTIZE_PRICES": said})
    assert open_model("house", settings).price() == Price(1, 5, 1, 1)
    assert open_model("house-20261123", settings).price() == Price(1, 5, 1, 1)
    assert open_model("claude-sonnet-5-5", settings).price() == Price(9, 9, 0, 9)
    assert open_model("claude-opus-5-5", settings).price() == price_of("claude-opus-5-5")


@pytest.mark.parametrize("key", ["cache_write_1h", "cacheWrite1h"])
def test_a_price_of_the_settings_may_name_what_an_hour_costs(key: str) -> None:
    said = f'{{"house": {{"input": 1, "output": 5, "{key}": 0}}, "other": {{"input": 1, "output": 5}}}}'
    settings = Settings.load(environ={"DEPUTIZE_PRICES": said})
    prices = [open_model(name, settings).price() for name in ("house", "other")]
    assert [price and price.cache_write_1h for price in prices] == [0, 2]
    passed = {name: text for name, text in settings.child_environment().items() if name.startswith("DEPUTIZE_")}
    assert Settings.load(environ=passed).prices == settings.prices
