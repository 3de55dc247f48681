"""A worker that becomes an ordinary user before it begins: ``--uid N``, then the arguments of a worker."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

from deputize.shared.libc import LIBC
from deputize.worker import __main__ as worker

_PR_SET_KEEPCAPS = 8
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_READ_SEARCH = 1 << 2


def become(uid: int) -> None:
    """Gives up root for good. It may still read this interpreter's own files: on some machines they lie in root's home.

    No program that it starts inherits that.
    """
    os.setgroups([])
    LIBC.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    # Effective, permitted and inheritable, for capabilities 0 to 31 and those above.
    data = struct.pack("=6I", _CAP_DAC_READ_SEARCH, _CAP_DAC_READ_SEARCH, 0, 0, 0, 0)
    if LIBC.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


def main() -> int:
    at = sys.argv.index("--uid")
    become(int(sys.argv[at + 1]))
    del sys.argv[at : at + 2]
    return worker.main()
