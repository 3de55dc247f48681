"""Webhooks by the rules of Standard Webhooks 1.0: what a request names, what may be notified, and signatures."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field

from .wire import Request

Requested = Literal["delegation.finished", "permission.requested"]
"""What a request chooses from."""
ALL: tuple[Requested, ...] = get_args(Requested)
NotificationType = Literal[Requested, "schedule.paused"]
_SECRET = re.compile(r"(?:([A-Za-z0-9_-]{1,64})=)?whsec_([A-Za-z0-9+/]+=*)")


class Webhook(Request):
    """A URL that is notified of a delegation's end and of its permission requests, by signed POST requests."""

    url: str = Field(min_length=1, max_length=2000)
    """Everyone who may read the delegation can read it, so it must not hold a secret."""
    events: list[Requested] = Field(default=[*ALL], min_length=1, max_length=20)
    """The events that it is notified of."""
    secret_name: str | None = Field(default=None, min_length=1, max_length=64)
    """The secret of the service's settings that signs. Null: those without a name."""


def wrong_url(url: str, hosts: Sequence[str]) -> str | None:
    """Returns why nothing is sent to this URL, as far as its text shows, or None. ``hosts``: the operator's.

    A worker judges addresses and ports when it connects.
    """
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port or 80
    except ValueError:
        return "its url is not a valid one"
    if not (url.isascii() and url.isprintable() and " " not in url and name and parts.scheme in ("https", "http")):
        return "its url is not https://HOST/PATH"
    if "@" in parts.netloc:
        return "its url holds a user name or a password"
    host = f"[{name}]" if ":" in name else name
    if parts.scheme == "https" or not {host, f"{host}:{port}"}.isdisjoint(each.lower() for each in hosts):
        return None
    return f"its url is without TLS, so DEPUTIZE_WEBHOOK_HOSTS has to name {host}:{port}"


def parsed_secret(text: str) -> tuple[str | None, bytes]:
    """Returns the name, if it has one, and the key of ``[NAME=]whsec_BASE64``. Raises ValueError without the text."""
    found = _SECRET.fullmatch(text)
    try:
        key = b64decode(found[2], validate=True) if found else b""
    except ValueError:
        key = b""
    if found is None or not 24 <= len(key) <= 64:
        raise ValueError("is not whsec_ and the base64 of 24 to 64 random bytes, or NAME= and that")
    return found[1], key


def signatures(keys: Sequence[bytes], id: str, timestamp: int, body: bytes) -> str:
    """Returns the value of the header ``webhook-signature``: one signature for each key."""
    signed = f"{id}.{timestamp}.".encode() + body
    return " ".join(f"v1,{b64encode(hmac.digest(key, signed, sha256)).decode()}" for key in keys)
