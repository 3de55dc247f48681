"""Signed statements: in-toto Statement v1 in an envelope of DSSE v1, signed with Ed25519."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner  # pyright: ignore[reportPrivateImportUsage]

from ..errors import Invalid
from ..wire import unique_keys
from .keys import PublicKey
from .statement import STATEMENT, written

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MAX_BYTES = 4_000_000
"""The largest envelope that is read."""


def signed(statement: dict[str, Any], signer: CryptoSigner) -> bytes:
    """Returns the envelope of the statement as JSON in one line."""
    envelope = Envelope(written(statement), PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return written(envelope.to_dict())


def opened(data: bytes, keys: Sequence[PublicKey]) -> tuple[dict[str, Any], PublicKey]:
    """Returns the statement of an envelope, and which of the keys signed it. Raises Invalid with the reason."""
    if len(data) > MAX_BYTES:
        raise Invalid(f"the proof has more than {MAX_BYTES:,} bytes")
    envelope = _envelope(data)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise Invalid(f"the payload is not of the type {PAYLOAD_TYPE}")
    used = next((key for key in keys if key.id in envelope.signatures), None)
    if used is None:
        raise Invalid("the proof was signed with a key that is none of those given")
    if used.is_expired:
        raise Invalid(f"the key {used.id} of the proof expired on {used.expires}")
    try:
        envelope.verify([used.key], 1)
    except VerificationError:
        raise Invalid("the signature does not fit the statement: one of both was changed") from None
    statement = _object(envelope.payload)
    if statement.get("_type") != STATEMENT:
        raise Invalid(f"what was signed is not a {STATEMENT}")
    return statement, used


def _envelope(data: bytes) -> Envelope:
    given = _object(data)
    try:
        envelope = Envelope.from_dict(json.loads(data))
        is_exact = envelope.to_dict() == given  # base64 has several texts for the same bytes
        is_bare = not any(each.unrecognized_fields for each in envelope.signatures.values())
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Invalid("not an envelope of DSSE") from None
    if not (is_exact and is_bare):
        raise Invalid("not an envelope of DSSE as it is written: unknown fields, or other base64")
    return envelope


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        raise Invalid("not JSON, or a name stands twice in one object") from None
    if not isinstance(value, dict):
        raise Invalid("not a JSON object")
    return cast("dict[str, Any]", value)
