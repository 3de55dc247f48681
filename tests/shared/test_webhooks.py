"""Which URLs may be notified, what a secret is, and signatures, which the reference package verifies."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from deputize.shared.errors import Misconfigured
from deputize.shared.request import DelegationRequest
from deputize.shared.settings import Settings
from deputize.shared.webhooks import Webhook, parsed_secret, signatures, wrong_url
from tests.runs.receiving import OTHER_SECRET, SECRET

HOSTS = ["hooks.internal", "10.0.0.5:9000", "[::1]:9000", "LOCALHOST:9000"]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://example.org/done", None),
        ("https://example.org:8443/done?x=1", None),
        ("https://93.184.215.14/done", None),
        ("http://hooks.internal/done", None),
        ("https://hooks.internal:8080/", None),
        ("http://10.0.0.5:9000", None),
        ("http://[::1]:9000/", None),
        ("http://localhost:9000/", None),
        ("http://example.org/done", "example.org:80"),
        ("http://10.0.0.5/", "10.0.0.5:80"),
        ("http://[::1]/", r"\[::1\]:80"),
        ("https://u:p@example.org/", "user name"),
        ("https://", "not https"),
        ("ftp://example.org/", "not https"),
        ("/done", "not https"),
        ("https://example.org/a b", "not https"),
        ("https://example.org/\n", "not https"),
        ("https://bücher.test/", "not https"),
        ("https://example.org:port/", "not a valid one"),
        ("https://[::1", "not a valid one"),
    ],
)
def test_what_may_be_notified(url: str, why: str | None) -> None:
    reason = wrong_url(url, HOSTS)
    if why is None:
        assert reason is None
    else:
        with pytest.raises(ValueError, match=why):
            raise ValueError(reason)


@pytest.mark.parametrize("size", [24, 32, 64])
def test_a_secret_may_have_a_name(size: int) -> None:
    text = base64.b64encode(bytes(size)).decode()
    assert parsed_secret(f"whsec_{text}") == (None, bytes(size))
    assert parsed_secret(f"ci-1=whsec_{text}") == ("ci-1", bytes(size))


@pytest.mark.parametrize(
    "text",
    ["", "whsec_", "abc", SECRET.removeprefix("whsec_"), SECRET[:-1], "whsec_QUJD", f"a b={SECRET}", f"={SECRET}"]
    + [f"whsec_{base64.b64encode(bytes(size)).decode()}" for size in (23, 65)],
)
def test_what_is_no_secret_is_refused_and_not_repeated(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not whsec_") as refusal:
        parsed_secret(text)
    assert len(text) < 8 or text not in str(refusal.value)
    if text:
        with pytest.raises(Misconfigured, match="DEPUTIZE_WEBHOOK_SECRETS") as wrong:
            Settings.load(environ={"DEPUTIZE_WEBHOOK_SECRETS": text, "DEPUTIZE_HOME": str(tmp_path)})
        assert len(text) < 8 or text not in str(wrong.value)


def test_a_signature_for_each_key_so_that_receivers_of_either_verify() -> None:
    keys, body, now = (
        [parsed_secret(each)[1] for each in (SECRET, OTHER_SECRET)],
        '{"a":"ł"}'.encode(),
        int(time.time()),
    )
    headers = {"webhook-id": "dlg_1-2", "webhook-timestamp": str(now)}
    signed = headers | {"webhook-signature": signatures(keys, "dlg_1-2", now, body)}
    assert signed["webhook-signature"].count("v1,") == 2
    for secret in (SECRET, OTHER_SECRET):
        assert Verifier(secret).verify(body, signed) == json.loads(body)
    for wrong in (
        signed | {"webhook-id": "dlg_1-3"},
        signed | {"webhook-timestamp": str(now - 1)},
        headers | {"webhook-signature": signatures(keys[1:], "dlg_1-2", now, body)},
    ):
        with pytest.raises(WebhookVerificationError):
            Verifier(SECRET).verify(body, wrong)
    with pytest.raises(WebhookVerificationError):
        Verifier(SECRET).verify(body + b" ", signed)


def settings(**webhook: Any) -> Settings:
    return Settings.load(environ={}, webhook=webhook)


def test_secrets_are_chosen_by_their_name() -> None:
    own = settings(secrets=[SECRET, f"ci={OTHER_SECRET}", f"ci={SECRET}"]).webhook
    key, other = parsed_secret(SECRET)[1], parsed_secret(OTHER_SECRET)[1]
    assert (own.keys(None), own.keys("ci"), own.keys("x")) == ([key], [other, key], [])


def test_secrets_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text(f"{SECRET}, ci={OTHER_SECRET}\n")
    loaded = Settings.load(environ={"DEPUTIZE_WEBHOOK_SECRETS_FILE": str(tmp_path / "secrets")})
    assert [len(loaded.webhook.keys(name)) for name in (None, "ci")] == [1, 1]
    passed = loaded.child_environment()["DEPUTIZE_WEBHOOK_SECRETS"]
    assert Settings.load(environ={"DEPUTIZE_WEBHOOK_SECRETS": passed}).webhook == loaded.webhook


@pytest.mark.parametrize(
    ("webhook", "why"),
    [
        ({"url": "https://example.org/"}, "DEPUTIZE_WEBHOOK_SECRETS"),
        ({"url": "https://example.org/", "secrets": [f"ci={SECRET}"]}, "DEPUTIZE_WEBHOOK_SECRETS"),
        ({"url": "http://example.org/", "secrets": [SECRET]}, "DEPUTIZE_WEBHOOK_HOSTS has to name example.org:80"),
        ({"secret": SECRET}, "secrets"),
    ],
)
def test_a_mistake_in_the_settings_names_what_to_set(webhook: dict[str, Any], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        settings(**webhook)


def test_the_settings_may_name_one_for_all() -> None:
    assert settings().webhook.default is None
    own = settings(url="https://example.org/", secrets=[SECRET])
    assert own.webhook.default == Webhook(url="https://example.org/")


def test_a_request_without_a_webhook_is_written_as_before() -> None:
    """Its idempotency key is known by what it was before the field was there."""
    assert "webhook" not in DelegationRequest(task="x").to_dict()
    assert "webhook" not in DelegationRequest(task="x", webhook=None).given_json()


@pytest.mark.parametrize(
    "webhook",
    [
        {},
        {"url": ""},
        {"url": "https://example.org/", "events": []},
        {"url": "https://example.org/", "events": ["x"]},
        {"url": "https://example.org/", "secret": SECRET},
        "https://example.org/",
    ],
)
def test_a_webhook_has_a_url_and_known_events_and_no_secret(webhook: Any) -> None:
    with pytest.raises(ValidationError):
        DelegationRequest.model_validate({"task": "x", "webhook": webhook})
