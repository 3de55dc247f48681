"""Where a service listens. Bound before it starts, so that its address is known and survives its restarts."""

from __future__ import annotations

import ipaddress
import socket

from shared.errors import Misconfigured


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 takes a free one. Raises Misconfigured when the address cannot be had."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Misconfigured(f"cannot listen on {host} port {port}: {reason}; set DEPUTIZE_PORT") from None


def url_of(listening: socket.socket) -> str:
    """How a program on this machine reaches it."""
    host, port = listening.getsockname()[:2]
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        host = "127.0.0.1"
    elif address.version == 6:
        host = f"[{host}]"
    return f"http://{host}:{port}"


def free_port() -> int:
    """For programs that cannot be handed a socket."""
    with listen("127.0.0.1", 0) as probe:
        return probe.getsockname()[1]
