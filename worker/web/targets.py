"""Allowed connection targets: checks of URLs by their text, and of addresses (public, or allowed by the operator)."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import httpx2

from ...shared.errors import Misconfigured

Address = IPv4Address | IPv6Address
_Table = Sequence[tuple[str, IPv4Network | IPv6Network]]

CLOUD_METADATA: frozenset[Address] = frozenset(
    map(
        ip_address,
        ("168.63.129.16", "169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254"),
    )
)
"""Metadata services of clouds, which provide credentials. No setting allows these."""
_NAT64 = IPv6Network("64:ff9b::/96")
_PUBLIC_V6 = IPv6Network("2000::/3")
"""The allocated global unicast addresses of IPv6. Others are not public: mapped, translated, discarded, …"""
_UNASSIGNED: Mapping[int, Address] = {4: IPv4Address("240.0.0.1"), 6: IPv6Address("100::1")}
"""Addresses that are never assigned to a machine."""
MAX_URL_CHARS = 4096
_PORTS = {"http": (80, 8080, 8443), "https": (443, 8080, 8443)}
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_NUMBER = re.compile(r"(.*\.)?(\d+|0x[0-9a-f]*)")
"""Browsers and resolvers treat hosts whose last label is a number as IPv4 addresses, in several notations."""


def _table(*rows: tuple[str, str]) -> _Table:
    return [(why, ip_network(network)) for why, networks in rows for network in networks.split()]


_LOOPBACK = _table(("a loopback address", "127.0.0.0/8 ::1/128"))
_PRIVATE = _table(
    ("a private address", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7"),
    ("a carrier's private address", "100.64.0.0/10"),
    ("a benchmark address", "198.18.0.0/15"),
)
"""Allowed only for hosts in ``private_hosts``."""
_NEVER = _table(
    ("an unspecified address", "0.0.0.0/8 ::/128"),
    ("a link-local address", "169.254.0.0/16 fe80::/10"),
    ("a site-local address", "fec0::/10"),
    ("a multicast address", "224.0.0.0/4 ff00::/8"),
    ("a documentation address", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
    ("a relay's address", "192.88.99.0/24 2002::/16"),
    ("a reserved address", "192.0.0.0/24 240.0.0.0/4 2001::/23"),
)


def refusal_reason(address: Address, *, private: bool = False, loopback: bool | None = None) -> str | None:
    """Returns why the address is not allowed, such as ``a loopback address``, or None.

    ``private`` allows private addresses and those of this machine. ``loopback``, if not the same, allows this
    machine's loopback addresses.
    """
    if address in CLOUD_METADATA:
        return "a cloud's metadata address"
    if isinstance(address, IPv6Address) and address in _NAT64:
        return refusal_reason(IPv4Address(int(address) & 0xFFFFFFFF))
    if why := _match(address, _LOOPBACK):
        return None if (private if loopback is None else loopback) else why
    if why := _match(address, _PRIVATE):
        return None if private else why
    if why := _match(address, _NEVER):
        return why
    if isinstance(address, IPv6Address) and (address not in _PUBLIC_V6 or address.scope_id):
        return "not a public address"
    return "an address of this machine" if not private and is_ours(address) else None


def is_ours(address: Address) -> bool:
    """Whether this machine itself has the address: only then can it be bound.

    With ``ip_nonlocal_bind`` every address can be bound, so the result is unknown.
    """
    return _binds(address) and not _binds(_UNASSIGNED[address.version])


def _binds(address: Address) -> bool:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
            return True
    except OSError:
        return False


def _match(address: Address, table: _Table) -> str | None:
    return next((why for why, network in table if address in network), None)


class ForbiddenTarget(httpx2.ConnectError):
    """A target that is not allowed. The message, with the reason, is for the model and for logs."""


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL. ``host`` is ASCII, in lower case, without brackets or a final dot; ``url`` has no fragment."""

    url: httpx2.URL
    host: str
    port: int
    address: Address | None
    """Set if the host is written as an address."""

    @property
    def host_port(self) -> str:
        """Host and port in the format of ``PrivateHosts``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def standard_port(self) -> bool:
        return self.port in _PORTS[self.url.scheme]


def target(url: str | httpx2.URL) -> Target:
    """Parses a URL. Raises ``ForbiddenTarget`` if no setting could allow it."""
    if len(str(url)) > MAX_URL_CHARS:
        raise ForbiddenTarget(f"the URL is longer than {MAX_URL_CHARS} characters")
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise ForbiddenTarget(f"this is not a valid URL: {error}") from None
    if parsed.scheme not in _PORTS:
        raise ForbiddenTarget("only http:// and https:// URLs can be fetched; use a complete URL with its scheme")
    if parsed.userinfo:
        raise ForbiddenTarget("a URL must not contain a user name or a password")
    host, address = _host(parsed.raw_host.decode("ascii"))
    port = parsed.port if parsed.port is not None else _PORTS[parsed.scheme][0]
    if not 0 < port < 65536:
        raise ForbiddenTarget(f"{port} is not a valid port")
    return Target(parsed.copy_with(host=host, fragment=None), host, port, address)


class PrivateHosts:
    """The operator's hosts that may have private addresses: ``name``, or ``name:port`` for that port alone."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = {_entry(entry) for entry in entries}

    def has(self, host: str, port: int) -> bool:
        return (host, None) in self._entries or (host, port) in self._entries

    def has_port(self, host: str, port: int) -> bool:
        """Whether the list has this port explicitly, which then need not be a standard one."""
        return (host, port) in self._entries


def _entry(text: str) -> tuple[str, int | None]:
    name, colon, digits = text.strip().rpartition(":")
    if not colon or (":" in name and not name.endswith("]")):
        name, digits = text.strip(), ""
    try:
        host, _ = _host(httpx2.URL(scheme="http", host=name.strip("[]")).raw_host.decode("ascii"))
        return host, int(digits) if digits else None
    except (ForbiddenTarget, httpx2.InvalidURL, ValueError):
        raise Misconfigured(f"private_hosts: {text!r} is neither a name nor name:port") from None


def _host(raw: str) -> tuple[str, Address | None]:
    host = raw.removesuffix(".")
    if not host:
        raise ForbiddenTarget("the URL has no host; use a complete URL such as https://example.com/page")
    try:
        if ":" in host:
            six = IPv6Address(host)
            return str(six), six
        if _NUMBER.fullmatch(host):
            four = IPv4Address(host)
            return str(four), four
    except ValueError:
        raise ForbiddenTarget(
            f"{host} is not an address; write one as four decimal numbers, or use the host's name"
        ) from None
    if not _NAME.fullmatch(host):
        raise ForbiddenTarget(f"{host[:100]!r} is not a valid host name")
    return host, None
