"""Where the API may listen: without a token only where it was asked for, and no other machine can reach it."""

from __future__ import annotations

import ipaddress

from shared.errors import Misconfigured
from shared.settings import Settings

TRUSTED = "every user and every program of this machine may use it"


def check_binding(settings: Settings) -> None:
    """Raises Misconfigured where anybody could hand over work."""
    if settings.token is not None:
        return
    if not settings.no_token:
        raise Misconfigured(
            "the service needs a token: set DEPUTIZE_TOKEN or DEPUTIZE_TOKEN_FILE, here and for its users "
            f"(with --no-token it needs none, and {TRUSTED})"
        )
    if not is_loopback(settings.host):
        raise Misconfigured(
            f"without a token the service answers on a loopback address only, not on {settings.host!r}; "
            "set DEPUTIZE_TOKEN or DEPUTIZE_TOKEN_FILE, or DEPUTIZE_HOST=127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
