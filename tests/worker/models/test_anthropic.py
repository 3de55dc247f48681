"""The adapter for the Messages API, against an endpoint that goes wrong in every way."""

from __future__ import annotations

import asyncio
import socket
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from pydantic import SecretStr

from shared.delegation import Usage
from shared.errors import ContextFull, ModelUnavailable
from shared.settings import Settings
from tests.fake_model import (
    FakeModel,
    Fault,
    Turn,
    bad_json,
    call,
    cut,
    overload,
    refuse,
    reset,
    stall,
    text,
)
from tests.waiting import until
from tests.worker.models.asking import IMPATIENT, MANY, model_of, parts_of, prompt_of, retries
from worker.history import History
from worker.models import close_models
from worker.models.anthropic import AnthropicModel
from worker.models.base import Reply, TextPart
from worker.models.retry import RetryPolicy

# What goes wrong and passes

PASSING = [
    *(refuse(status, retry_after_ms="1") for status in (408, 409, 429, 500, 502, 503, 504, 529)),
    refuse(529),
    refuse(400, x_should_retry="true"),
    overload(),
    overload(after=0),
    cut(),
    cut(after=0),
    cut(after=99),
    reset(),
    bad_json(),
]


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: f"{fault.kind}-{fault.status}-{fault.after}")
async def test_a_passing_failure_is_said_and_tried_again(fake: FakeModel, fault: Fault) -> None:
    fake.script("", [Turn([text(MANY)], faults=[fault, fault])])
    parts = await parts_of(model_of(fake), "hello")
    assert len(retries(parts)) == 2
    at = parts.index(retries(parts)[-1])
    assert "".join(part.text for part in parts[at + 1 : -1] if isinstance(part, TextPart)) == MANY
    assert isinstance(parts[-1], Reply)
    assert parts[-1].text == MANY
    assert [asked.outcome for asked in fake.journal][-1] == "answered"


async def test_a_stream_that_stalls_is_left_and_asked_for_again(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], faults=[stall()])])
    parts = await parts_of(model_of(fake, RetryPolicy(first_delay=0.001, read_timeout=0.5)), "hello")
    assert "stalled" in retries(parts)[0].error
    assert isinstance(parts[-1], Reply)
    await until(lambda: fake.aborted >= 1)


async def test_an_endpoint_that_answers_nothing_at_all_is_a_stall_too(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], delay=30)])
    with pytest.raises(ModelUnavailable, match="stalled"):
        await parts_of(model_of(fake, RetryPolicy(tries=2, first_delay=0.001, read_timeout=0.05)), "hello")
    await until(lambda: fake.aborted == 2)


@pytest.mark.parametrize("fault", [overload(), bad_json()], ids=lambda fault: fault.kind)
async def test_what_a_failed_try_cost_is_said(fake: FakeModel, fault: Fault) -> None:
    fake.script("", [Turn([text(MANY)], usage={"input_tokens": 1000}, faults=[fault, refuse(529)])])
    streamed, refused = retries(await parts_of(model_of(fake), "hello"))
    assert streamed.wasted == Usage(input_tokens=1000, output_tokens=1, cost_usd=0.00201)
    assert refused.wasted == Usage()


@pytest.mark.parametrize(
    ("headers", "shortest", "longest"),
    [
        ({"retry_after_ms": "20"}, 0.02, 0.022),
        ({"retry_after": "0.03"}, 0.03, 0.033),
        ({"retry_after": "1000"}, 0.05, 0.055),
        ({"retry_after": "Fri, 31 Dec 2100 23:59:59 GMT"}, 0.05, 0.055),
        ({"retry_after": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0, 0),
        ({"retry_after": "soon"}, 0.0005, 0.001),
        ({}, 0.0005, 0.001),
    ],
)
async def test_the_endpoint_says_when_to_come_back(
    fake: FakeModel, headers: dict[str, str], shortest: float, longest: float
) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(429, **headers)])])
    (retry,) = retries(await parts_of(model_of(fake, RetryPolicy(first_delay=0.001, longest_wait=0.05)), "hello"))
    assert shortest <= retry.delay <= longest


def test_delays_grow_up_to_a_roof() -> None:
    retry_policy = RetryPolicy(first_delay=1, longest_delay=4)
    delays = [[retry_policy.delay(tries, None) for _ in range(50)] for tries in (1, 2, 3, 4, 5)]
    for roof, some in zip([1, 2, 4, 4, 4], delays, strict=True):
        assert all(roof / 2 <= delay <= roof for delay in some)
        assert len(set(some)) > 1


async def test_an_endpoint_may_fail_for_as_long_as_the_setting_says(fake: FakeModel) -> None:
    """Not for a number of tries: fifteen bad seconds must not end what was paid for."""
    faults = [refuse(529), refuse(500), refuse(429), cut(), reset(), overload()] * 4
    fake.script("", [Turn([text(MANY)], faults=faults)])
    retry_policy = RetryPolicy(seconds=300, first_delay=0.001, longest_delay=0.002)
    parts = await parts_of(model_of(fake, retry_policy), "hello")
    assert len(retries(parts)) == len(faults)
    assert isinstance(parts[-1], Reply)
    assert parts[-1].text == MANY


@pytest.mark.parametrize("seconds", [0, 0.05])
async def test_when_that_time_is_over_the_setting_is_named(fake: FakeModel, seconds: float) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(529)] * 500)])
    settings = Settings.load(
        environ={
            "ANTHROPIC_API_KEY": fake.key,
            "ANTHROPIC_BASE_URL": fake.url,
            "DEPUTIZE_MODEL_RETRY_SECONDS": str(seconds),
        }
    )
    with pytest.raises(ModelUnavailable, match=rf"DEPUTIZE_MODEL_RETRY_SECONDS \({seconds:g}\)"):
        await parts_of(AnthropicModel.open("m", settings), "hello")
    assert len(fake.journal) == (2 if seconds else 1)


# What goes wrong for good


async def test_after_six_tries_the_url_is_named(fake: FakeModel) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(529)] * 9)])
    with pytest.raises(ModelUnavailable) as error:
        await parts_of(model_of(fake), "hello")
    assert len(fake.journal) == 6
    for words in (f"{fake.url}/v1/messages", "6 tries", "HTTP 529", "ANTHROPIC_BASE_URL"):
        assert words in str(error.value)


async def test_an_endpoint_that_is_down_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    endpoint = {"ANTHROPIC_API_KEY": SecretStr("sk-key-x"), "ANTHROPIC_BASE_URL": SecretStr(url)}
    model = AnthropicModel("m", endpoint, IMPATIENT)
    with pytest.raises(ModelUnavailable, match=f"after 6 tries; .*no connection to {url}"):
        await parts_of(model, "hello")
    await close_models()


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"x" * 100_000])
async def test_an_endpoint_that_speaks_no_http_is_told(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        endpoint = {"ANTHROPIC_API_KEY": SecretStr("sk-key-x"), "ANTHROPIC_BASE_URL": SecretStr(url)}
        with pytest.raises(ModelUnavailable, match=f"{url}/v1/messages .*after 6 tries.*ANTHROPIC_BASE_URL"):
            await parts_of(AnthropicModel("m", endpoint, IMPATIENT), "hello")
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
async def test_a_conversation_that_is_too_long_is_told_apart(fake: FakeModel, fault: Fault, too_long: bool) -> None:
    fake.script("", [Turn([text("x")], faults=[fault])])
    with pytest.raises(ModelUnavailable) as error:
        await parts_of(model_of(fake), "hello")
    assert isinstance(error.value, ContextFull) == too_long


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("claude-sonnet-5-5", 1_000_000), ("claude-opus-5", 1_000_000), ("claude-haiku-4-5", 200_000), ("m", 128_000)],
)
def test_a_models_window_is_known_by_its_name(name: str, tokens: int) -> None:
    assert AnthropicModel(name, {}).window() == tokens


async def test_a_wrong_key_is_never_repeated_in_the_message(fake: FakeModel) -> None:
    """This endpoint quotes the key it refuses."""
    endpoint = {"ANTHROPIC_API_KEY": SecretStr("sk-very-secret"), "ANTHROPIC_BASE_URL": SecretStr(fake.url)}
    with pytest.raises(ModelUnavailable) as error:
        await parts_of(AnthropicModel("m", endpoint, IMPATIENT), "hello")
    assert "sk-very-secret" not in str(error.value)
    assert "'***'" in str(error.value)


async def test_a_key_with_a_line_end_is_explained_without_quoting_it(fake: FakeModel) -> None:
    endpoint = {"ANTHROPIC_API_KEY": SecretStr("sk-very\nsecret"), "ANTHROPIC_BASE_URL": SecretStr(fake.url)}
    with pytest.raises(ModelUnavailable, match="line ends") as error:
        await parts_of(AnthropicModel("m", endpoint, IMPATIENT), "hello")
    assert "secret" not in str(error.value)


async def test_without_a_key_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(ModelUnavailable, match="Set ANTHROPIC_API_KEY"):
        await parts_of(AnthropicModel("m", {}, IMPATIENT), "hello")
    await close_models()


async def test_a_certificate_nobody_vouches_for_is_told(tmp_path: Path) -> None:
    async with FakeModel(tls=self_signed(tmp_path)) as fake:
        with pytest.raises(ModelUnavailable, match=f"certificate of {fake.url}.* is not trusted"):
            await parts_of(model_of(fake), "hello")
        await close_models()


async def test_what_is_no_messages_api_is_told(fake: FakeModel) -> None:
    endpoint = {"ANTHROPIC_API_KEY": SecretStr(fake.key), "ANTHROPIC_BASE_URL": SecretStr(f"{fake.url}/fake")}
    with pytest.raises(ModelUnavailable, match="no Messages API"):
        await parts_of(AnthropicModel("m", endpoint, IMPATIENT), "hello")


@pytest.mark.parametrize("url", ["ftp://model.invalid", "http://", "not a url"])
async def test_a_url_that_cannot_be_used_is_told(url: str) -> None:
    endpoint = {"ANTHROPIC_API_KEY": SecretStr("sk-key-x"), "ANTHROPIC_BASE_URL": SecretStr(url)}
    with pytest.raises(ModelUnavailable):
        await parts_of(AnthropicModel("m", endpoint, IMPATIENT), "hello")
    await close_models()


async def test_a_conversation_the_api_refuses_says_why(fake: FakeModel) -> None:
    history = History()
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
