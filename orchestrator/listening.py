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
    return _url("127.0.0.1" if ipaddress.ip_address(host).is_unspecified else host, port)


def bound_to(listening: socket.socket) -> str:
    """The address as it was bound, which may be all of this machine's."""
    return _url(*listening.getsockname()[:2])


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def free_port() -> int:
    """For programs that cannot be handed a socket."""
    with listen("127.0.0.1", 0) as probe:
        return probe.getsockname()[1]
