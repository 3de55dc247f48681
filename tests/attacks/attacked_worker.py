"""A worker that becomes an ordinary user before it begins (``--uid N``), or whose network is a double (``--network``,
its arguments in JSON); then the arguments of a worker."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys

from deputize.shared.libc import LIBC
from deputize.worker import __main__ as worker
from deputize.worker.tools import BUILTIN
from deputize.worker.tools.web_fetch import WebFetch
from tests.internet import Rerouted

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
    if uid := _taken("--uid"):
        become(int(uid))
    if not (double := _taken("--network")):
        return worker.main()
    network = Rerouted(**json.loads(double))
    tools = [WebFetch(network=network) if tool.name == WebFetch.name else tool for tool in BUILTIN]
    return worker.main(tools=tools, network=network)


def _taken(option: str) -> str | None:
    """The value of an option, which is removed."""
    if option not in sys.argv:
        return None
    at = sys.argv.index(option)
    value = sys.argv[at + 1]
    del sys.argv[at : at + 2]
    return value
