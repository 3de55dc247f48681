"""What the kernel does not do for a command of a model: namespaces, mounts, other processes, odd sockets."""

from __future__ import annotations

import os

import pytest

from tests.attacks.stage import DOORS, Stage

pytestmark = pytest.mark.system
CALLS = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "chroot": (161, 51),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "open_by_handle_at": (304, 265),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "acct": (163, 89),
    "syslog": (103, 116),
    "fanotify_init": (300, 262),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
}
"""Numbers on x86-64 and on aarch64."""
SYSCALLS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for word in sys.argv[1:]:
    name, number = word.split("=")
    result = libc.syscall(int(number), 0, 0, 0, 0, 0, 0)
    print(name, "went" if result >= 0 else ctypes.get_errno())
clone3 = libc.syscall(435, 0, 0)
print("clone3", ctypes.get_errno())
"""
FAMILIES = {
    "VSOCK": 40,
    "ALG": 38,
    "PACKET": 17,
    "XDP": 44,
    "BLUETOOTH": 31,
    "TIPC": 30,
    "CAN": 29,
    "KEY": 15,
    "RDS": 21,
}
SOCKETS = """
import socket, sys
for number in sys.argv[1:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        try:
            socket.socket(int(number), kind)
            print("opened", number, kind)
        except PermissionError:
            print("refused")
        except OSError as error:
            print(error, number, kind)
"""
ESCAPES = {
    "user namespaces": "unshare --user --map-root-user id",
    "all namespaces": "unshare --mount --pid --net --fork id",
    "another's namespace": "nsenter --target 1 --mount --net id",
    "the first process": "nsenter --target 1 --all id",
    "bind mounts": "mount --bind /proc /workspace",
    "a tmpfs": "mount -t tmpfs none /tmp",
    "remounts": "mount -o remount,rw /",
    "devices": "mknod /tmp/disk b 8 0",
    "set-uid programs": "cp /bin/bash own && chmod u+s own && ./own -p -c 'echo $EUID' | grep -vx 1000",
    "owners": "chown 0:0 /workspace",
    "hard links": "ln /etc/passwd linked",
    "core patterns": "echo '|/workspace/x' > /proc/sys/kernel/core_pattern",
    "sysctls": "echo 1 > /proc/sys/kernel/sysrq",
    "sysrq": "echo b > /proc/sysrq-trigger",
    "the score of the OOM killer": "echo -1000 > /proc/self/oom_score_adj",
    "the uid map": "echo '0 0 1' > /proc/self/uid_map",
    "system programs": "echo x >> /usr/bin/env",
    "the guard": "cat /proc/2/mem || cat /.guard/sh || echo x > /.guard/sh",
    "files of the system": "echo x > /etc/ld.so.preload",
    "the root": "mkdir /planted",
    "devices of the machine": "ls /dev/sda /dev/vda /dev/kvm /dev/fuse /dev/mem /dev/kmsg /dev/net",
    "kernel logs": "dmesg",
    "cgroups": "mkdir /sys/fs/cgroup/planted",
    "real time": "chrt -f 1 true",
}
EPERM, ENOSYS = "1", "38"


@pytest.mark.parametrize("door", DOORS)
async def test_no_command_gets_out_by_a_system_program(stage: Stage, door: str) -> None:
    lines = [f"({command}) >/dev/null 2>&1 && echo {name!r} went" for name, command in ESCAPES.items()]
    assert await stage.shell("; ".join([*lines, "echo tried"]), door=door) == ["tried"]


@pytest.mark.parametrize("door", DOORS)
async def test_the_kernel_refuses_what_the_filter_names(stage: Stage, door: str) -> None:
    machine = ("x86_64", "aarch64").index(os.uname().machine)
    words = " ".join(f"{name}={numbers[machine]}" for name, numbers in CALLS.items())
    (said,) = await stage.shell(f"python3 - {words} <<'END'\n{SYSCALLS}\nEND", door=door)
    found = dict(line.split() for line in said.splitlines())
    assert found == dict.fromkeys(CALLS, EPERM) | {"clone3": ENOSYS}


@pytest.mark.parametrize("door", DOORS)
async def test_no_socket_of_an_odd_family_is_opened(stage: Stage, door: str) -> None:
    words = " ".join(map(str, FAMILIES.values()))
    (said,) = await stage.shell(f"python3 - {words} <<'END'\n{SOCKETS}\nEND", door=door)
    assert said.split() == ["refused"] * 4 * len(FAMILIES)
