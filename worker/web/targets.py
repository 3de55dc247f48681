"""What a URL leads to, judged by its text alone: scheme, host, port. Addresses behind names are the dial's to judge."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import httpx2

from shared.errors import Misconfigured
from worker.web.addresses import Address

MAX_URL_CHARS = 4096
_PORTS = {"http": (80, 8080, 8443), "https": (443, 8080, 8443)}
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_NUMBER = re.compile(r"(.*\.)?(\d+|0x[0-9a-f]*)")
"""Hosts whose last label is a number are IPv4 addresses to browsers and resolvers, in whatever spelling."""


class Forbidden(httpx2.ConnectError):
    """What must not be dialled, and why. The message is for the model and for logs."""


@dataclass(frozen=True, slots=True)
class Target:
    """``host`` is ASCII, in lower case, without brackets or a final dot; ``url`` has the same host and no fragment."""

    url: httpx2.URL
    host: str
    port: int
    address: Address | None
    """Where the host is written as an address."""

    @property
    def listed(self) -> str:
        """Host and port the way ``PrivateHosts`` takes them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def standard_port(self) -> bool:
        return self.port in _PORTS[self.url.scheme]


def target(url: str | httpx2.URL) -> Target:
    """Where the URL leads. Raises ``Forbidden`` where nothing could ever be dialled for it, whoever allows it."""
    if len(str(url)) > MAX_URL_CHARS:
        raise Forbidden(f"the URL is longer than {MAX_URL_CHARS} characters")
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise Forbidden(f"this is no valid URL: {error}") from None
    if parsed.scheme not in _PORTS:
        raise Forbidden("only http:// and https:// URLs can be fetched; give the complete URL with its scheme")
    if parsed.userinfo:
        raise Forbidden("a URL must not hold a user name or a password")
    host, address = _host(parsed.raw_host.decode("ascii"))
    port = parsed.port if parsed.port is not None else _PORTS[parsed.scheme][0]
    if not 0 < port < 65536:
        raise Forbidden(f"there is no port {port}")
    return Target(parsed.copy_with(host=host, fragment=None), host, port, address)


class PrivateHosts:
    """The operator's hosts that may lie on private addresses: ``name``, or ``name:port`` for that port alone."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._listed = {_entry(entry) for entry in entries}

    def has(self, host: str, port: int) -> bool:
        return (host, None) in self._listed or (host, port) in self._listed

    def has_port(self, host: str, port: int) -> bool:
        """Whether the list names this very port, which then need not be one of the usual ones."""
        return (host, port) in self._listed


def _entry(text: str) -> tuple[str, int | None]:
    name, colon, digits = text.strip().rpartition(":")
    if not colon or (":" in name and not name.endswith("]")):
        name, digits = text.strip(), ""
    try:
        host, _ = _host(httpx2.URL(scheme="http", host=name.strip("[]")).raw_host.decode("ascii"))
        return host, int(digits) if digits else None
    except (Forbidden, httpx2.InvalidURL, ValueError):
        raise Misconfigured(f"private_hosts: {text!r} is neither a name nor name:port") from None


def _host(raw: str) -> tuple[str, Address | None]:
    host = raw.removesuffix(".")
    if not host:
        raise Forbidden("the URL names no host; give the complete URL, such as https://example.com/page")
    try:
        if ":" in host:
            six = IPv6Address(host)
            return str(six), six
        if _NUMBER.fullmatch(host):
            four = IPv4Address(host)
            return str(four), four
    except ValueError:
        raise Forbidden(f"{host} is no address; write one as four decimal numbers, or use the host's name") from None
    if not _NAME.fullmatch(host):
        raise Forbidden(f"{host[:100]!r} is no host name")
    return host, None
