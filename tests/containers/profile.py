"""A seccomp profile of the engines as the kernel's filter: by libseccomp, as the engines' own runtime compiles it."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PROFILE = Path(__file__).parents[2] / "worker/sandbox/seccomp-worker.json"
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_OPERATIONS = {"SCMP_CMP_NE": 1, "SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}
_EXISTS = -17
_UNKNOWN = -1


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operation", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("other", ctypes.c_uint64),
    )


class Filter(ctypes.Structure):
    """The kernel's ``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def as_filter(program: bytes) -> Filter:
    return Filter(len(program) // 8, program)


@cache
def library() -> ctypes.CDLL:
    """Raises OSError where there is none."""
    found = ctypes.CDLL("libseccomp.so.2")
    found.seccomp_init.restype = ctypes.c_void_p
    return found


def need_library() -> None:
    """Skips without libseccomp, which apt depends on; in CI that fails."""
    try:
        library()
    except OSError as error:
        fail = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        fail(f"SKIPPED: {error}; on Debian and Ubuntu: apt install libseccomp2")


def compiled(file: Path) -> bytes:
    """The profile of the file for this machine."""
    return compile(json.loads(file.read_text("utf-8")))


def compile(profile: dict[str, Any]) -> bytes:
    lib = library()
    context = ctypes.c_void_p(lib.seccomp_init(_action(profile["defaultAction"], None)))
    for architecture in _further(profile):
        answer = lib.seccomp_arch_add(context, lib.seccomp_arch_resolve_name(architecture.encode()))
        assert answer in (0, _EXISTS), (architecture, answer)
    for rule in profile["syscalls"]:
        action = _action(rule["action"], rule.get("errnoRet"))
        comparisons = _comparisons(rule.get("args", ()))
        for name in rule["names"]:
            if (number := lib.seccomp_syscall_resolve_name(name.encode())) == _UNKNOWN:
                continue  # as the engines do: a profile names calls of newer kernels
            assert lib.seccomp_rule_add_array(context, action, number, len(comparisons), comparisons) == 0, name
    file = os.memfd_create("profile")
    assert lib.seccomp_export_bpf(context, file) == 0
    lib.seccomp_release(context)
    with os.fdopen(file, "rb") as exported:
        exported.seek(0)
        return exported.read()


def denying(names: Sequence[str], file: Path = PROFILE) -> dict[str, Any]:
    """The profile of the file, which denies these calls, too."""
    found = json.loads(file.read_text("utf-8"))
    found["syscalls"].insert(0, {"names": [*names], "action": "SCMP_ACT_ERRNO", "errnoRet": 1})
    return found


def _action(name: str, number: int | None) -> int:
    return {"SCMP_ACT_ALLOW": _ALLOW, "SCMP_ACT_ERRNO": _ERRNO | (1 if number is None else number)}[name]


def _further(profile: dict[str, Any]) -> list[str]:
    """The architectures whose calls the filter knows beside this machine's."""
    native = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}[os.uname().machine]
    (own,) = (each for each in profile["archMap"] if each["architecture"] == native)
    return [name.removeprefix("SCMP_ARCH_").lower() for name in own["subArchitectures"]]


def _comparisons(arguments: Sequence[dict[str, Any]]) -> Any:
    found = [
        _Comparison(each["index"], _OPERATIONS[each["op"]], each["value"], each.get("valueTwo", 0))
        for each in arguments
    ]
    return (_Comparison * len(found))(*found)
