"""Which addresses may be dialled: public ones, and private ones only for hosts that the operator has named."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
_Table = Sequence[tuple[str, IPv4Network | IPv6Network]]

CLOUD_METADATA: frozenset[Address] = frozenset(
    map(
        ip_address,
        ("168.63.129.16", "169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254"),
    )
)
"""Where clouds hand out credentials and instructions. No setting opens these."""


def _table(*rows: tuple[str, str]) -> _Table:
    return [(why, ip_network(network)) for why, networks in rows for network in networks.split()]


_LOOPBACK = _table(("a loopback address", "127.0.0.0/8 ::1/128"))
_PRIVATE = _table(
    ("a private address", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7"),
    ("a carrier's private address", "100.64.0.0/10"),
    ("a benchmark address", "198.18.0.0/15"),
)
"""What a host that the operator has named may lie on, and nobody else."""
_NEVER = _table(
    ("an unspecified address", "0.0.0.0/8 ::/128"),
    ("a link-local address", "169.254.0.0/16 fe80::/10"),
    ("a site-local address", "fec0::/10"),
    ("a multicast address", "224.0.0.0/4 ff00::/8"),
    ("a documentation address", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
    ("a relay's address", "192.88.99.0/24 2002::/16"),
    ("a reserved address", "192.0.0.0/24 240.0.0.0/4 2001::/23"),
)
_NAT64 = IPv6Network("64:ff9b::/96")
_PUBLIC_V6 = IPv6Network("2000::/3")
"""All that is given out of IPv6. Whatever lies elsewhere is no public address: mapped, translated, discarded, …"""
_NOBODYS: Mapping[int, Address] = {4: IPv4Address("240.0.0.1"), 6: IPv6Address("100::1")}
"""Addresses that no machine has."""


def refusal(address: Address, *, private: bool = False, loopback: bool | None = None) -> str | None:
    """Why the address must not be dialled, such as ``a loopback address``; None where it may be.

    ``private``: the host is one that may lie on private addresses and on this machine. ``loopback``, if not the same:
    whether it may lie on this machine's loopback addresses.
    """
    if address in CLOUD_METADATA:
        return "a cloud's metadata address"
    if isinstance(address, IPv6Address) and address in _NAT64:
        return refusal(IPv4Address(int(address) & 0xFFFFFFFF))
    if why := _found(address, _LOOPBACK):
        return None if (private if loopback is None else loopback) else why
    if why := _found(address, _PRIVATE):
        return None if private else why
    if why := _found(address, _NEVER):
        return why
    if isinstance(address, IPv6Address) and (address not in _PUBLIC_V6 or address.scope_id):
        return "no public address"
    return "an address of this machine" if not private and is_ours(address) else None


def is_ours(address: Address) -> bool:
    """Whether this machine itself has the address: then, and only then, the kernel lets us bind to it.

    Where it is set up to let us bind to anything (``ip_nonlocal_bind``), nobody can tell.
    """
    return _binds(address) and not _binds(_NOBODYS[address.version])


def _binds(address: Address) -> bool:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
            return True
    except OSError:
        return False


def _found(address: Address, table: _Table) -> str | None:
    return next((why for why, network in table if address in network), None)
