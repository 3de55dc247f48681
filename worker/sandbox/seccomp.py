"""The seccomp filter program with the system calls that are denied to sandboxed programs."""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass
from functools import cache

from ...shared.errors import Misconfigured

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_EPERM = 0x00050000 | errno.EPERM
_ENOSYS = 0x00050000 | errno.ENOSYS

_LOAD, _RETURN = 0x20, 0x06
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_X32 = 0x40000000
_CLONE3 = 435
_PAGE = 4096
_HUGE = 0o4000  # SHM_HUGETLB
_NEW_NAMESPACES = 0x7E020000
_FAMILIES = (1, 2, 10, 16)  # UNIX, INET, INET6, NETLINK: the network namespace isolates the rest except VSOCK
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

NEEDED = (
    *("clone", "unshare", "mount", "umount2", "pivot_root", "sethostname", "capset", "prctl"),
    *("memfd_create", "openat2"),
)
"""System calls that the sandbox makes itself and that a filter around the worker must allow."""

_BOTH = (
    *range(425, 434),  # io_uring_setup … fspick
    438,  # pidfd_getfd
    442,  # mount_setattr
    443,  # quotactl_fd
    447,  # memfd_secret
    467,  # open_tree_attr
)


@dataclass(frozen=True, slots=True)
class _Machine:
    audit: int
    clone: int
    socket: int
    socketpair: int
    ioctl: int
    shmget: int
    denied: tuple[int, ...]


# In both tables, in this order: other processes' memory; keys; bpf, perf, userfaultfd; mounts and namespaces;
# modules, kexec, reboot, swap, quota, accounting, log; clocks; handles; fanotify; memory that dodges the
# address-space limit (memfd_create); names of the host; obsolete calls.
_MACHINES = {
    "x86_64": _Machine(
        audit=0xC000003E,
        clone=56,
        socket=41,
        socketpair=53,
        ioctl=16,
        shmget=29,
        denied=(
            *(101, 310, 311, 312, 248, 249, 250, 321, 298, 323),
            *(165, 166, 155, 161, 272, 308),
            *(175, 313, 176, 246, 320, 169, 167, 168, 179, 163, 103),
            *(164, 227, 159, 305, 303, 304, 300, 319, 170, 171),
            *(153, 180, 212, 134, 136, 154, 156, 172, 173, 174, 177, 178),
            203,  # sched_setaffinity: commands are tied to the processors of their run
        ),
    ),
    "aarch64": _Machine(
        audit=0xC00000B7,
        clone=220,
        socket=198,
        socketpair=199,
        ioctl=29,
        shmget=194,
        denied=(
            *(117, 270, 271, 272, 217, 218, 219, 280, 241, 282),
            *(40, 39, 41, 51, 97, 268),
            *(105, 273, 106, 104, 294, 142, 224, 225, 60, 89, 116),
            *(170, 112, 171, 266, 264, 265, 262, 279, 161, 162),
            *(58, 42, 18),
            122,  # sched_setaffinity
        ),
    ),
}


@cache
def program(machine: str = "") -> bytes:
    """Returns the filter for a machine (``uname -m``, default: this one). Raises Misconfigured for an unknown one."""
    name = machine or os.uname().machine
    if name not in _MACHINES:
        known = " and ".join(_MACHINES)
        raise Misconfigured(f"the sandbox's system call filter is written for {known}, not for {name}")
    known_machine = _MACHINES[name]
    steps = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, known_machine.audit, 1, 0), _step(_RETURN, _KILL)]
    steps += [_step(_LOAD, _NUMBER)]
    if name == "x86_64":
        steps += [_step(_AT_LEAST, _X32, 0, 1), _step(_RETURN, _KILL)]
    steps += _if(_CLONE3, _ENOSYS)  # its flags are in memory that a filter cannot read; libc falls back to clone
    for number in (*known_machine.denied, *_BOTH):
        steps += _if(number, _EPERM)
    steps += _arguments(known_machine)
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _arguments(machine: _Machine) -> list[bytes]:
    """Returns the checks of arguments. Each block ends with a verdict, as it has overwritten the call's number."""
    flags = [_step(_LOAD, _ARGUMENTS), _step(_ANY_BIT, _NEW_NAMESPACES, 0, 1), _step(_RETURN, _EPERM)]
    blocks = {machine.clone: flags}
    for call, families in ((machine.socket, _FAMILIES), (machine.socketpair, _FAMILIES[:1])):
        allowed = [step for family in families for step in _if(family, _ALLOW)]
        blocks[call] = [_step(_LOAD, _ARGUMENTS), *allowed, _step(_RETURN, _EPERM)]
    refused = [step for request in _TERMINAL_INJECTION for step in _if(request, _EPERM)]
    blocks[machine.ioctl] = [_step(_LOAD, _ARGUMENTS + 8), *refused]
    # A page is what PostgreSQL locks its data with; 4,096 of them, the kernel's limit, dodge no more than 16 MiB.
    size, high, options = _ARGUMENTS + 8, _ARGUMENTS + 12, _ARGUMENTS + 16
    small = [_step(_LOAD, high), _step(_EQUAL, 0, 1, 0), _step(_RETURN, _EPERM)]
    small += [_step(_LOAD, size), _step(_AT_LEAST, _PAGE + 1, 0, 1), _step(_RETURN, _EPERM)]
    small += [_step(_LOAD, options), _step(_ANY_BIT, _HUGE, 0, 1), _step(_RETURN, _EPERM)]
    blocks[machine.shmget] = small
    steps: list[bytes] = []
    for call, block in blocks.items():
        steps += [_step(_EQUAL, call, 0, len(block) + 1), *block, _step(_RETURN, _ALLOW)]
    return steps


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _if(value: int, answer: int) -> list[bytes]:
    return [_step(_EQUAL, value, 0, 1), _step(_RETURN, answer)]
