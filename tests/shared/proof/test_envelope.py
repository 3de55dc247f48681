"""Envelopes: the specification's own example, and the refusal of each that no given key signed."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from securesystemslib.dsse import Envelope

from deputize.shared.errors import Invalid
from deputize.shared.proof.envelope import MAX_BYTES, opened, signed
from deputize.shared.proof.statement import STATEMENT
from tests.shared.proof.signing import OTHER, SIGNER, public

KEYS = [public(SIGNER)]
FACTS: dict[str, Any] = {"_type": STATEMENT, "subject": [{"name": "patch", "digest": {"sha256": "0" * 64}}]}
SPECIFIED = {
    "payload": "aGVsbG8gd29ybGQ=",
    "payloadType": "http://example.com/HelloWorld",
    "signatures": [
        {
            "keyid": "66301bbf",
            "sig": "A3JqsQGtVsJ2O2xqrI5IcnXip5GToJ3F+FnZ+O88SjtR6rDAajabZKciJTfUiHqJPcIAriEGAHTVeCUjW2JIZA==",
        }
    ],
}
"""The example of the DSSE protocol 1.0.0."""
X = 46950820868899156662930047687818585632848591499744589407958293238635476079160
Y = 5640078356564379163099075877009565129882514886557779369047442380624545832820


def test_the_bytes_that_are_signed_are_those_of_the_specification() -> None:
    envelope = Envelope.from_dict(json.loads(json.dumps(SPECIFIED)))
    assert envelope.pae() == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    raw = bytes.fromhex(envelope.signatures["66301bbf"].signature)
    signature = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    key = ec.EllipticCurvePublicNumbers(X, Y, ec.SECP256R1()).public_key()
    key.verify(signature, envelope.pae(), ec.ECDSA(SHA256()))


def test_a_statement_is_opened_with_any_of_several_keys() -> None:
    keys = [public(OTHER), public(SIGNER)]
    assert [opened(signed(FACTS, each), keys) for each in (SIGNER, OTHER)] == [(FACTS, keys[1]), (FACTS, keys[0])]


def test_a_key_is_accepted_on_its_last_day_and_not_afterwards() -> None:
    today = datetime.now(UTC).date()
    assert opened(signed(FACTS, SIGNER), [public(SIGNER, today + timedelta(days=1))])[0] == FACTS
    with pytest.raises(Invalid, match=f"the key {SIGNER.public_key.keyid} of the proof expired on 2026-11-01"):
        opened(signed(FACTS, SIGNER), [public(SIGNER, date(2026, 11, 1))])


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("ending", ["x", "xy", "xyz"], ids=["padding 2", "padding 1", "no padding"])
def test_every_flip_of_one_bit_is_refused(ending: str, bit: int) -> None:
    data = signed({**FACTS, "predicate": ending}, SIGNER) + b"\n"
    opened(data, KEYS)
    accepted: list[int] = []
    for at in range(len(data)):
        changed = bytes((*data[:at], data[at] ^ (1 << bit), *data[at + 1 :]))
        try:
            opened(changed, KEYS)
        except Invalid:
            continue
        accepted.append(at)
    assert accepted == []


def _changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(signed(FACTS, SIGNER)), **fields}).encode()


def _signature(**fields: Any) -> dict[str, Any]:
    return {**json.loads(signed(FACTS, SIGNER))["signatures"][0], **fields}


def _other_type() -> bytes:
    envelope = Envelope(b'{"_type": "x"}', "text/plain", {})
    envelope.sign(SIGNER)
    return json.dumps(envelope.to_dict()).encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (signed(FACTS, OTHER), "none of those given"),
        (_changed(signatures=[]), "none of those given"),
        (_changed(signatures=[_signature(keyid=OTHER.public_key.keyid)]), "none of those given"),
        (_changed(signatures=[_signature(sig=base64.b64encode(b"0" * 64).decode())]), "was changed"),
        (_changed(signatures=[_signature(), _signature()]), "not an envelope"),
        (_changed(signatures=[_signature(note="x")]), "unknown fields"),
        (_changed(signatures=None), "not an envelope"),
        (_changed(signatures=["x"]), "not an envelope"),
        (_changed(payload=7), "not an envelope"),
        (_changed(note="x"), "unknown fields"),
        (_changed(payload=base64.b64encode(b'{"_type": "x"}').decode()), "was changed"),
        (_other_type(), "not of the type"),
        (signed({"_type": "x"}, SIGNER), "is not a https://in-toto.io/Statement/v1"),
        (b'{"payload": "", "payload": ""}', "stands twice"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b" " * (MAX_BYTES + 1), "more than"),
    ],
)
def test_what_no_given_key_signed_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        opened(data, KEYS)


def test_without_a_key_nothing_is_accepted() -> None:
    with pytest.raises(Invalid, match="none of those given"):
        opened(signed(FACTS, SIGNER), [])
