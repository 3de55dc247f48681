"""What a command finds of the machine. Needs nothing but Python, so that it runs inside a sandbox, given as text.

Its argument is one JSON object, what to look for, and it prints another one, what it found, by the rows of
``protections.py``. Run outside of a sandbox it must find what is hidden there on purpose: then it also sees what a
sandbox lets through.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CANARY = re.compile(rb"deputize-canary-[0-9a-f]{16}")
_SYSTEM = ("/proc", "/sys", "/dev", "/usr", "/lib", "/bin", "/sbin")
_PREFIXES = ("", "/proc/1/root", "/proc/2/root", "/proc/self/root", "/oldroot", "/newroot/..", "/workspace/../..")
_WALK_SECONDS = 1.0
_CONNECT_SECONDS = 0.5
_LARGEST_AREA = 64 << 20
_REFUSED = (1, 38)
"""EPERM and ENOSYS."""


def _canaries(data: bytes) -> set[str]:
    return {found.decode() for found in CANARY.findall(data)}


def _environments(processes: list[str]) -> str:
    found: list[bytes] = []
    for process in processes:
        try:
            found.append(Path(f"/proc/{process}/environ").read_bytes())
        except OSError:
            continue
    return b"\0".join(found).decode("utf-8", "replace")


def _areas(process: str) -> Iterator[bytes]:
    try:
        maps = Path(f"/proc/{process}/maps").read_text("ascii", "replace").splitlines()
        areas = [line.split()[0] for line in maps if " rw" in line]
        with Path(f"/proc/{process}/mem").open("rb", 0) as memory:
            for area in areas:
                begin, end = (int(each, 16) for each in area.split("-"))
                try:
                    memory.seek(begin)
                    yield memory.read(min(end - begin, _LARGEST_AREA))
                except (OSError, OverflowError, ValueError):
                    continue
    except OSError:
        return


def _memory(processes: list[str]) -> list[str]:
    return sorted({canary for process in processes for area in _areas(process) for canary in _canaries(area)})


def _is_open(path: str) -> bool:
    """Returns whether a file or directory can be opened for reading."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _walked(name: str) -> Iterator[str]:
    """Yields where a file of that name lies, outside of the system's own directories."""
    until = time.monotonic() + _WALK_SECONDS
    for place, folders, files in os.walk("/"):
        if place == "/":
            folders[:] = [each for each in folders if not f"/{each}".startswith(_SYSTEM)]
        if name in files:
            yield str(Path(place, name))
        if time.monotonic() > until:
            return


def _read(paths: list[str], names: list[str]) -> list[str]:
    """Returns the paths that can be opened, of these and of files of these names."""
    every = [prefix + path for path in paths for prefix in _PREFIXES]
    every += [path for name in names for path in _walked(name)]
    return [path for path in every if _is_open(path)]


def _reached(addresses: list[list[Any]]) -> list[str]:
    found: list[str] = []
    for name, family, kind, address in addresses:
        with socket.socket(family, kind) as client:
            client.settimeout(_CONNECT_SECONDS)
            try:
                client.connect(tuple(address) if isinstance(address, list) else address)
                client.send(b"\r\n")
            except OSError:
                continue
            found.append(name)
    return found


def _carried_out(calls: dict[str, int]) -> list[str]:
    """Returns the system calls that were not refused before the kernel looked at their arguments, which are invalid."""
    libc = ctypes.CDLL(None, use_errno=True)
    invalid = [ctypes.c_long(-1)] * 6
    return [
        name
        for name, number in calls.items()
        if libc.syscall(number, *invalid) != -1 or ctypes.get_errno() not in _REFUSED
    ]


def _opened(families: dict[str, int]) -> list[str]:
    found: list[str] = []
    for name, number in families.items():
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            try:
                socket.socket(number, kind).close()
            except PermissionError:
                continue
            except OSError:  # the filter let it pass, and this kernel lacks it
                pass
            found.append(name)
    return sorted({*found})


def _answers(proxy: int, urls: list[str]) -> list[str]:
    """Returns the first line of what the proxy answers about each URL."""
    found: list[str] = []
    for url in urls:
        host = url.split("/")[2]
        try:
            with socket.create_connection(("127.0.0.1", proxy), 10 * _CONNECT_SECONDS) as client:
                client.sendall(f"GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                found.append(client.makefile("rb").readline().decode("latin-1").strip())
        except OSError as error:
            found.append(type(error).__name__)
    return found


def main() -> None:
    asked: dict[str, Any] = json.loads(sys.argv[1])
    everyone = [each.name for each in Path("/proc").iterdir() if each.name.isdigit()]
    processes = everyone if asked.get("everyone") else ["self"]
    environ = _environments(processes)
    found: dict[str, Any] = {
        "environ": environ,
        "environments": sorted(_canaries(environ.encode())),
        "memory": _memory(processes),
        "calls": _carried_out(asked.get("calls", {})),
        "families": _opened(asked.get("families", {})),
        "answers": _answers(asked.get("proxy", 0), asked.get("urls", [])),
    }
    found |= {row: _read(paths, asked["names"][row]) for row, paths in asked.get("paths", {}).items()}
    found |= {row: _reached(addresses) for row, addresses in asked.get("addresses", {}).items()}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
