"""Whether a delivery is from the service that a trigger is for, and by which id that service knows it.

Comparisons take constant time, and each refusal is the same: which part was wrong helps only those who guess.
"""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Sequence
from hashlib import sha256

from starlette.datastructures import Headers

from ..shared.errors import Refused, Unauthorized
from ..shared.settings.triggers import TriggerSettings, key_of
from ..shared.webhooks import signatures

TOLERANCE_SECONDS = 300
"""How far the time of a signed delivery may be from now, in both directions."""
MAX_DELIVERY_ID = 255
_TIMESTAMP = re.compile(r"[1-9][0-9]{0,11}")
_KEY_PREFIX = b"whsec_"
_IDS = {
    "github": ("x-github-delivery",),
    "gitlab": ("webhook-id", "idempotency-key", "x-gitlab-event-uuid"),
    "standard": ("webhook-id",),
    "token": ("webhook-id", "idempotency-key"),
}
"""The headers with the id of a delivery, the same for each try; the first one that is there counts."""


def unauthorized() -> Unauthorized:
    """Returns the one error of deliveries that are not verified, also for a trigger that does not exist."""
    return Unauthorized(
        "the delivery is not accepted: there is no such trigger, or its signature, time or token is wrong; compare "
        "the address and the secret with the service's settings"
    )


def check_signature(trigger: TriggerSettings, secrets: Sequence[bytes], headers: Headers, body: bytes) -> None:
    """Raises Unauthorized where none of the secrets has signed the delivery. Not for the scheme ``token``."""
    match trigger.scheme:
        case "github":
            given = _only(headers, "x-hub-signature-256")
            verified = _one_of(given, [f"sha256={hmac.new(key, body, sha256).hexdigest()}" for key in secrets])
        case "gitlab":
            verified = _is_of_gitlab(secrets, headers, body)
        case _:
            verified = _is_standard(secrets, headers, body)
    if not verified:
        raise unauthorized()


def delivery_id(trigger: TriggerSettings, headers: Headers) -> str:
    """Returns the id of a verified delivery. Raises Refused where it has none, or one that is not usable."""
    for name in _IDS[trigger.scheme]:
        if name in headers:
            id = _only(headers, name)
            if not id.strip() or len(id) > MAX_DELIVERY_ID:
                break
            return id
    named = " or ".join(_IDS[trigger.scheme])
    raise Refused(f"the delivery needs one id of at most {MAX_DELIVERY_ID} characters, in the header {named}")


def _is_of_gitlab(secrets: Sequence[bytes], headers: Headers, body: bytes) -> bool:
    """A signing token (``whsec_…``) signs as Standard Webhooks; other secrets are sent as they are."""
    signing = [key_of(secret) for secret in secrets if secret.startswith(_KEY_PREFIX)]
    if "webhook-signature" in headers:
        return _is_standard(signing, headers, body)
    plain = [secret.decode("latin-1") for secret in secrets if not secret.startswith(_KEY_PREFIX)]
    return _one_of(_only(headers, "x-gitlab-token"), plain)


def _is_standard(keys: Sequence[bytes], headers: Headers, body: bytes) -> bool:
    id, sent = _only(headers, "webhook-id"), _only(headers, "webhook-timestamp")
    if not _TIMESTAMP.fullmatch(sent) or abs(time.time() - int(sent)) > TOLERANCE_SECONDS:
        return False
    wanted = [signatures([key], id, int(sent), body) for key in keys] if id.isascii() else []
    given = _only(headers, "webhook-signature").split()
    return any(_one_of(each, wanted) for each in given)


def _only(headers: Headers, name: str) -> str:
    """Returns the value of a header; "" where it is missing, or there are several that could contradict each other."""
    given = headers.getlist(name)
    return given[0] if len(given) == 1 else ""


def _one_of(given: str, wanted: Sequence[str]) -> bool:
    """Returns whether it is one of them; each comparison takes constant time."""
    sent = given.encode("latin-1", "replace")
    return any(hmac.compare_digest(sent, each.encode("latin-1")) for each in wanted)
