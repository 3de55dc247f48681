"""The system call filter, run instruction by instruction as the kernel would, on both architectures."""

from __future__ import annotations

import errno
import struct

import pytest

from deputize.shared.errors import Misconfigured
from deputize.worker.sandbox import seccomp

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
PERMISSION, NO_SUCH_CALL = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
X86, ARM = "x86_64", "aarch64"
AUDIT = {X86: 0xC000003E, ARM: 0xC00000B7}


def judge(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """The filter's answer to one call."""
    words = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=IIQ6Q", number, audit, 0, *words)
    steps = list(struct.iter_unpack("=HBBI", program))
    loaded = at = 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        match code:
            case 0x20:
                loaded = struct.unpack_from("=I", data, value)[0]
            case 0x06:
                return value
            case 0x15:
                at += if_true if loaded == value else if_false
            case 0x35:
                at += if_true if loaded >= value else if_false
            case 0x45:
                at += if_true if loaded & value else if_false
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@pytest.mark.parametrize(
    ("machine", "number", "arguments", "expected"),
    [
        (X86, 0, (), ALLOW),  # read
        (X86, 59, (), ALLOW),  # execve
        (X86, 101, (), PERMISSION),  # ptrace
        (X86, 165, (), PERMISSION),  # mount
        (X86, 272, (), PERMISSION),  # unshare
        (X86, 319, (), PERMISSION),  # memfd_create
        (X86, 425, (), PERMISSION),  # io_uring_setup
        (X86, 435, (), NO_SUCH_CALL),  # clone3
        (X86, 56, (0x00010F00,), ALLOW),  # clone: a thread
        (X86, 56, (0x10000011,), PERMISSION),  # clone: a new user namespace
        (X86, 41, (1, 1), ALLOW),  # socket: UNIX
        (X86, 41, (10, 1), ALLOW),  # socket: INET6
        (X86, 41, (40, 1), PERMISSION),  # socket: VSOCK
        (X86, 53, (1, 1), ALLOW),  # socketpair: UNIX
        (X86, 53, (2, 1), PERMISSION),  # socketpair: INET
        (X86, 16, (0, 0x5401), ALLOW),  # ioctl: TCGETS
        (X86, 16, (0, 0x5412), PERMISSION),  # ioctl: TIOCSTI
        (X86, 16, (0, 0x541C), PERMISSION),  # ioctl: TIOCLINUX
        (X86, 29, (0, 56, 0o1600), ALLOW),  # shmget: as PostgreSQL locks its data
        (X86, 29, (0, 4097, 0o1600), PERMISSION),
        (X86, 29, (0, 1 << 32, 0o1600), PERMISSION),
        (X86, 29, (0, 56, 0o5600), PERMISSION),  # shmget: of a huge page
        (X86, 0x40000000 | 59, (), KILL),  # execve of the x32 kind
        (ARM, 63, (), ALLOW),  # read
        (ARM, 117, (), PERMISSION),  # ptrace
        (ARM, 40, (), PERMISSION),  # mount
        (ARM, 97, (), PERMISSION),  # unshare
        (ARM, 279, (), PERMISSION),  # memfd_create
        (ARM, 435, (), NO_SUCH_CALL),
        (ARM, 220, (0x20000000,), PERMISSION),  # clone: a new pid namespace
        (ARM, 220, (0x11,), ALLOW),
        (ARM, 198, (2, 1), ALLOW),  # socket: INET
        (ARM, 198, (38, 5), PERMISSION),  # socket: ALG
        (ARM, 194, (0, 4096, 0o1600), ALLOW),  # shmget
        (ARM, 194, (0, 4097, 0o1600), PERMISSION),
        (ARM, 29, (0, 0x5412), PERMISSION),
    ],
)
def test_a_call_is_judged_by_its_number_and_arguments(
    machine: str, number: int, arguments: tuple[int, ...], expected: int
) -> None:
    assert judge(seccomp.program(machine), AUDIT[machine], number, *arguments) == expected


@pytest.mark.parametrize("machine", [X86, ARM])
def test_a_foreign_architectures_calls_end_the_process(machine: str) -> None:
    assert judge(seccomp.program(machine), 0x40000003, 3) == KILL


def test_a_machine_without_a_table_is_refused() -> None:
    with pytest.raises(Misconfigured, match="written for x86_64 and aarch64, not for riscv64"):
        seccomp.program("riscv64")
