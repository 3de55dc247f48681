"""Addresses of services: checks that one is allowed, and binds it before the service starts."""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import urlsplit

from ..shared.errors import Misconfigured
from ..shared.settings import Settings

TRUSTED = "every user and every program of this machine may use it"


def check_binding(settings: Settings) -> None:
    """Raises Misconfigured if the service would be open to other machines without a token."""
    if settings.asks_for_token:
        return
    if not settings.no_token:
        raise Misconfigured(
            "the service needs a token: set DEPUTIZE_TOKEN or DEPUTIZE_TOKEN_FILE, here and for its users, or "
            "DEPUTIZE_TOKENS_FILE here "
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


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening TCP socket; port 0 takes a free one. Raises Misconfigured if the address is unavailable."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Misconfigured(f"cannot listen on {host} port {port}: {reason}; set DEPUTIZE_PORT") from None


def bound_url(listener: socket.socket) -> str:
    """Returns the URL of the bound address, which may be a wildcard."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def url_of(listener: socket.socket) -> str:
    """Returns the URL for programs on this machine."""
    return re.sub(r"//(0\.0\.0\.0|\[::\]):", "//127.0.0.1:", bound_url(listener))


def free_port() -> int:
    """Returns a free port, for programs that cannot inherit a socket."""
    with listen("127.0.0.1", 0) as probe:
        return probe.getsockname()[1]


def scheme_and_host(url: str) -> tuple[str, str]:
    """Returns those of the URL of a service. Raises Misconfigured if it is not one."""
    try:
        address = urlsplit(url)
        if address.scheme in ("http", "https") and address.hostname and (address.port is None or address.port):
            return address.scheme, address.hostname
    except ValueError:
        pass
    raise Misconfigured(f"{url!r} is not a service URL; DEPUTIZE_URL looks like http://127.0.0.1:8642")
