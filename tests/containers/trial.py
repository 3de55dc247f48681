"""The self-test of a worker's sandbox as a program: prints why commands cannot be run here, and ends with 1."""

from __future__ import annotations

import asyncio

from deputize.shared.errors import Misconfigured
from deputize.shared.libc import require_openat2
from deputize.worker.sandbox.bubblewrap import Bubblewrap


def main() -> int:
    try:
        require_openat2()
    except Misconfigured as error:
        print(error)
        return 1
    reason = asyncio.run(Bubblewrap.selftest())
    print(reason)
    return int(reason is not None)
