"""Where the API may listen: without a token only where nobody else can reach it."""

from __future__ import annotations

import ipaddress

from shared.errors import Misconfigured
from shared.settings import Settings


def check_binding(settings: Settings) -> None:
    """Raises Misconfigured where anybody could hand over work."""
    if settings.token is None and not is_loopback(settings.host):
        raise Misconfigured(
            f"without a token the service answers on a loopback address only, not on {settings.host!r}; "
            "set DEPUTIZE_TOKEN or DEPUTIZE_TOKEN_FILE, or DEPUTIZE_HOST=127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
