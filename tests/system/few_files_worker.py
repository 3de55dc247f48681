"""A worker that may have no more open files than its last argument states."""

from __future__ import annotations

import resource
import sys

from deputize.worker import __main__ as worker


def main() -> int:
    most = int(sys.argv.pop())
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return worker.main()
