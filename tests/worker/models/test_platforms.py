"""Platforms: what each gets, as its SDK signs it: URL, headers, body and signature."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import BadRequestError
from anthropic._base_client import BaseClient
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from deputize.shared import log
from deputize.shared.errors import Misconfigured, ModelUnavailable
from deputize.shared.settings import Settings
from deputize.worker.models import close_models, open_model
from deputize.worker.models.base import Model
from deputize.worker.models.credentials import Credentials
from deputize.worker.models.endpoint import Endpoint
from deputize.worker.models.platforms import PLATFORMS, Signer
from deputize.worker.models.retry import RetryPolicy
from tests.fake_model import Asked, FakeModel, Turn, refuse, text
from tests.fake_model.sigv4 import verifier
from tests.worker.models.asking import prompt_of, reply_of

ID, SECRET = "AKIAFAKEFAKEFAKEFAKE", "fake-secret-of-aws-0123456789"
KEY = "platform-key-0123456789"
ANTHROPIC = {"ANTHROPIC_API_KEY": "sk-of-another", "ANTHROPIC_CUSTOM_HEADERS": "x-secret: of another"}
"""Of another endpoint: no platform may get it."""
AWS = {
    "AWS_ACCESS_KEY_ID": ID,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "eu-west-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "ANTHROPIC_AWS_WORKSPACE_ID": "wrkspc_1",
}
GOOGLE = {"ANTHROPIC_GOOGLE_CLOUD_PROJECT": "project-1", "ANTHROPIC_GOOGLE_CLOUD_WORKSPACE_ID": "wrkspc_2"}
FOUNDRY = {"ANTHROPIC_FOUNDRY_RESOURCE": "resource-1"}
Refusal = Callable[[Asked], str | None]


def bearer(token: str) -> Refusal:
    return lambda asked: None if asked.headers.get("authorization") == f"Bearer {token}" else "another token"


def foundry_key(asked: Asked) -> str | None:
    return None if asked.headers.get("x-api-key") == asked.headers.get("api-key") == KEY else "another key"


SIGNED_FOR_AWS = verifier(ID, SECRET, "eu-west-1", "aws-external-anthropic")
SIGNED_FOR_BEDROCK = verifier(ID, SECRET, "eu-west-1", "bedrock-mantle")
CASES: dict[str, tuple[dict[str, Any], Mapping[str, str], Refusal, str]] = {
    "aws": ({"platform": "aws"}, AWS, SIGNED_FOR_AWS, "https://aws-external-anthropic.eu-west-1.api.aws/v1/messages"),
    "aws with a key": (
        {"platform": "aws", "key": "PLATFORM_KEY"},
        AWS,
        bearer(KEY),
        "https://aws-external-anthropic.eu-west-1.api.aws/v1/messages",
    ),
    "bedrock": (
        {"platform": "bedrock"},
        AWS,
        SIGNED_FOR_BEDROCK,
        "https://bedrock-mantle.eu-west-1.api.aws/anthropic/v1/messages",
    ),
    "bedrock with its variable": (
        {"platform": "bedrock"},
        AWS | {"AWS_BEARER_TOKEN_BEDROCK": KEY},
        bearer(KEY),
        "https://bedrock-mantle.eu-west-1.api.aws/anthropic/v1/messages",
    ),
    "google-cloud": (
        {"platform": "google-cloud"},
        GOOGLE,
        bearer("token-1"),
        "https://claude.googleapis.com/v1/projects/project-1/locations/global/workspaces/wrkspc_2/invoke/v1/messages",
    ),
    "foundry": (
        {"platform": "foundry", "key": "PLATFORM_KEY"},
        FOUNDRY,
        foundry_key,
        "https://resource-1.services.ai.azure.com/anthropic/v1/messages",
    ),
}
RECORDED = {
    "accept": "application/json",
    "accept-encoding": "identity",
    "anthropic-version": "2026-10-21",
    "content-type": "application/json",
}
OWN_HEADERS = {
    "aws": {"anthropic-workspace-id": "wrkspc_1", "authorization": "AWS4-HMAC-SHA256", "x-amz-date": "20"},
    "aws with a key": {"anthropic-workspace-id": "wrkspc_1", "authorization": f"Bearer {KEY}"},
    "bedrock": {"authorization": "AWS4-HMAC-SHA256", "x-amz-date": "20"},
    "bedrock with its variable": {"authorization": f"Bearer {KEY}"},
    "google-cloud": {"authorization": "Bearer token-1"},
    "foundry": {"x-api-key": KEY, "api-key": KEY},
}
"""What its headers begin with."""


@asynccontextmanager
async def google_account(folder: Path) -> AsyncIterator[str]:
    """A file of credentials whose token endpoint hands out ``token-1``, ``token-2`` and so on."""
    tokens = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tokens
        tokens += 1
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
        body = json.dumps({"access_token": f"token-{tokens}", "expires_in": 3600, "token_type": "Bearer"}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n")
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        account = {
            "type": "service_account",
            "project_id": "project-of-the-account",
            "private_key_id": "1",
            "private_key": pem,
            "client_email": "deputize@project.example",
            "client_id": "1",
            "token_uri": f"http://127.0.0.1:{port}/token",
        }
        path = folder / "account.json"
        path.write_text(json.dumps(account))
        yield str(path)


async def sent_by_sdk(name: str, credentials: Credentials) -> httpx2.Request:
    """What the SDK itself sends: it is asked for a message, and the request is recorded."""
    sent: list[httpx2.Request] = []

    def record(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(400, json={})

    module, _, client_class = PLATFORMS[CASES[name][0]["platform"]].client.partition(":")
    recorder = httpx2.AsyncClient(transport=httpx2.MockTransport(record))
    key = {"api_key": credentials.token} if credentials.token else {}
    async with getattr(import_module(module), client_class)(http_client=recorder, max_retries=0, **key) as client:
        with pytest.raises(BadRequestError):
            await client.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "hello"}])
    return sent[0]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    prefixes = ("AWS_", "ANTHROPIC_", "GOOGLE_", "HTTP_", "HTTPS_", "ALL_", "NO_")
    for name in [name for name in os.environ if name.upper().startswith(prefixes)]:
        monkeypatch.delenv(name)
    for name, value in ANTHROPIC.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def platform() -> AsyncIterator[FakeModel]:
    # The path is signed and sent as it is.
    async with FakeModel(turns=[Turn([text("From the platform.")])], below="/a%3Ab") as fake:
        yield fake
        await close_models()


def chosen(monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str], **table: Any) -> Settings:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return Settings.load(
        environ={**ANTHROPIC, **environ, "PLATFORM_KEY": KEY}, models={"there": {"model": "claude-opus-5-5", **table}}
    )


def opened(monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str], **table: Any) -> Model:
    return open_model("there", chosen(monkeypatch, environ, **table))


@pytest.mark.parametrize("name", CASES)
async def test_a_platform_gets_the_same_body_signed_as_it_wants(
    platform: FakeModel, fake: FakeModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    table, environ, refusal, _ = CASES[name]
    platform.refuses = refusal
    prompt = prompt_of("hello, wörld " * 2000)
    async with google_account(tmp_path) as account:
        given = {**environ, "GOOGLE_APPLICATION_CREDENTIALS": account}
        model = opened(monkeypatch, given, base_url=platform.url, **table)
        assert (await reply_of(model, prompt)).text == "From the platform."
    (asked,) = platform.journal
    assert "x-secret" not in asked.headers
    assert "sk-of-another" not in str(asked.headers)
    settings = Settings.load(environ=fake.variables)
    await reply_of(open_model("claude-opus-5-5", settings), prompt)
    assert asked.raw == fake.journal[0].raw


@pytest.mark.parametrize("name", CASES)
async def test_the_request_to_the_platform_itself_is_the_recorded_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    table, environ, refusal, url = CASES[name]
    async with google_account(tmp_path) as account:
        settings = chosen(monkeypatch, {**environ, "GOOGLE_APPLICATION_CREDENTIALS": account}, **table)
        credentials = Credentials.of(settings, "there")
        signer, endpoint = Signer(credentials), Endpoint(credentials, RetryPolicy())
        signed, headers = await signer.signed("v1/messages", b'{"model": "m"}')
        sdk = await sent_by_sdk(name, credentials)
        await asyncio.gather(signer.aclose(), endpoint.aclose())
    assert signed == endpoint.url == str(sdk.url) == url
    path = "/" + url.partition("://")[2].partition("/")[2]
    assert refusal(Asked(headers, None, b'{"model": "m"}', path)) is None
    assert {header: headers[header] for header in RECORDED} == RECORDED
    own = {header: value for header, value in headers.items() if header not in RECORDED and "stainless" not in header}
    wanted = OWN_HEADERS[name] | {"host": url.split("/")[2], "content-length": "14", "user-agent": "deputize/"}
    assert own.keys() == wanted.keys()
    assert {header: own[header][: len(value)] for header, value in wanted.items()} == wanted
    of_sdk = {header for header in sdk.headers if header not in RECORDED and "stainless" not in header}
    assert of_sdk - own.keys() == {"connection", "x-secret"}  # the SDK sends the headers of the other endpoint, too
    assert own.keys() <= of_sdk


@pytest.mark.parametrize(
    "url", ["https://bedrock-mantle.us-east-1.api.aws/anthropic", "https://a.us-gov-west-1.api.aws"]
)
async def test_an_address_of_aws_is_signed_for_its_region(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    signer = Signer(Credentials.of(chosen(monkeypatch, AWS, platform="bedrock", base_url=url), "there"))
    _, headers = await signer.signed("v1/messages", b"{}")
    await signer.aclose()
    assert f"/{url.split('.')[1]}/bedrock-mantle/aws4_request" in headers["authorization"]


async def test_the_project_may_be_that_of_the_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with google_account(tmp_path) as account:
        given = {"ANTHROPIC_GOOGLE_CLOUD_WORKSPACE_ID": "wrkspc_2", "GOOGLE_APPLICATION_CREDENTIALS": account}
        credentials = Credentials.of(chosen(monkeypatch, given, platform="google-cloud"), "there")
        signer, endpoint = Signer(credentials), Endpoint(credentials, RetryPolicy())
        url, _ = await signer.signed("v1/messages", b"{}")
        await asyncio.gather(signer.aclose(), endpoint.aclose())
    path = "v1/projects/project-of-the-account/locations/global/workspaces/wrkspc_2/invoke/v1/messages"
    assert url == f"https://claude.googleapis.com/{path}"
    assert endpoint.url.startswith("https://claude.googleapis.com/")


async def test_no_log_line_has_the_key(
    platform: FakeModel, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The SDK logs the options of a request, headers included, and botocore what it signs, where debugging is on."""
    settings = chosen(monkeypatch, FOUNDRY, platform="foundry", key="PLATFORM_KEY", base_url=platform.url)
    region = AWS | {"AWS_REGION": "eu-west-3"}
    aws = chosen(monkeypatch, region, platform="aws", base_url=platform.url)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-token-of-a-role")  # as if a role had it
    platform.refuses = lambda asked: None
    handlers, level = logging.root.handlers[:], logging.root.level
    try:
        log.set_up("DEBUG", settings.secrets)
        for each in (settings, aws):
            await reply_of(open_model("there", each), "hello")
    finally:
        logging.basicConfig(level=level, handlers=handlers, force=True)
    assert platform.journal[1].headers["x-amz-security-token"] == "session-token-of-a-role"
    lines = capfd.readouterr().err
    assert "x-api-key" in lines
    assert [secret for secret in (KEY, "session-token-of-a-role") if secret in lines] == []


async def test_each_try_is_signed_anew(platform: FakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    platform.refuses = SIGNED_FOR_AWS
    platform.script("", [Turn([text("At last.")], faults=[refuse(529, retry_after_ms="1")])])
    model = opened(monkeypatch, AWS, platform="aws", base_url=platform.url)
    assert (await reply_of(model, "hello")).text == "At last."
    assert [each.status for each in platform.journal] == [529, 200]


async def test_a_signed_request_follows_no_redirect(platform: FakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 307 -\r\nconnection: close\r\ncontent-length: 0\r\n")
        writer.write(b"location: %b/v1/messages\r\n\r\n" % platform.url.encode())
        writer.close()

    async with await asyncio.start_server(redirect, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ModelUnavailable, match="HTTP 307"):
            await reply_of(opened(monkeypatch, AWS, platform="aws", base_url=url), "hello")
    assert platform.journal == []


async def test_a_signature_that_the_platform_does_not_accept_is_not_tried_again(
    platform: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.refuses = verifier(ID, "another secret", "eu-west-1", "aws-external-anthropic")
    model = opened(monkeypatch, AWS, platform="aws", base_url=platform.url)
    with pytest.raises(ModelUnavailable, match=r"the signature is another one.* check its permissions") as error:
        await reply_of(model, "hello")
    assert len(platform.journal) == 1
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("table", "environ", "reason"),
    [
        ({"platform": "aws"}, AWS | {"AWS_REGION": ""}, "No AWS region was provided"),
        ({"platform": "aws"}, {"AWS_REGION": "eu-west-1"}, "No workspace ID found"),
        ({"platform": "bedrock"}, {}, "No AWS region or base URL found"),
        ({"platform": "foundry"}, FOUNDRY, "Missing credentials"),
        ({"platform": "foundry", "key": "PLATFORM_KEY"}, {}, "ANTHROPIC_FOUNDRY_RESOURCE"),
        (
            {"platform": "aws"},
            {**AWS, "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_REGION": "eu-none-1"},
            "cannot be signed: Could not resolve AWS credentials",
        ),
        ({"platform": "google-cloud"}, {**GOOGLE, "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere"}, "/nowhere"),
    ],
)
async def test_what_a_platform_lacks_is_named_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, table: dict[str, Any], environ: dict[str, str], reason: str
) -> None:
    with pytest.raises(ModelUnavailable, match=reason) as error:
        await reply_of(opened(monkeypatch, {name: value for name, value in environ.items() if value}, **table), "hello")
    await close_models()
    assert not error.value.may_pass


async def test_a_token_that_the_platform_quotes_is_not_repeated(
    platform: FakeModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    platform.refuses = lambda asked: f"wrong: {asked.headers['authorization']}"
    async with google_account(tmp_path) as account:
        given = {**GOOGLE, "GOOGLE_APPLICATION_CREDENTIALS": account}
        with pytest.raises(ModelUnavailable, match=r"HTTP 403 .* wrong: Bearer \*\*\*"):
            await reply_of(opened(monkeypatch, given, platform="google-cloud", base_url=platform.url), "hello")


def test_an_sdk_that_signs_in_another_way_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(BaseClient, "_build_request")
    with pytest.raises(Misconfigured, match=r"_build_request is gone\); install anthropic 2\.12"):
        opened(monkeypatch, FOUNDRY, platform="foundry", key="PLATFORM_KEY")


def test_what_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(Misconfigured, match=r"signs requests with boto3, which is not installed: `pip install '\.\["):
        opened(monkeypatch, AWS, platform="bedrock")
    opened(monkeypatch, AWS, platform="bedrock", key="PLATFORM_KEY")  # a key needs no library


@pytest.mark.parametrize("table", [{"platform": "bedrock"}, {"platform": "foundry", "key": "PLATFORM_KEY"}])
async def test_a_socks_proxy_is_refused_by_name_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, table: dict[str, Any]
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://user:hidden@127.0.0.1:9")
    with pytest.raises(ModelUnavailable, match=r"of \[models\.there\] is misconfigured: .*socks5://127") as error:
        await reply_of(opened(monkeypatch, AWS | FOUNDRY, **table), "hello")
    assert "ALL_PROXY" in str(error.value)
    assert "hidden" not in str(error.value)
