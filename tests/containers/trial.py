"""What a container must be able to do, as a program: with 0 it is able to, else it prints why not.

The name it is called by says what: ``merge``, or else the self-test of a worker's sandbox.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from deputize.shared.errors import Misconfigured
from deputize.shared.git import git
from deputize.shared.libc import require_openat2
from deputize.worker.sandbox.bubblewrap import Bubblewrap


def main() -> int:
    return _merge() if sys.argv[0] == "merge" else _sandbox()


def _merge() -> int:
    lines = [f"{number}\n" for number in range(20)]
    texts = {"base": lines, "one": ["one\n", *lines[1:]], "other": [*lines[:-1], "other\n"]}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            Path(folder, name).write_text("".join(text))
        done = git("merge-file", "-p", "-q", "one", "base", "other", cwd=Path(folder))
    print(done.stderr.decode())
    return int(done.returncode != 0 or not done.stdout.startswith(b"one\n1\n"))


def _sandbox() -> int:
    try:
        require_openat2()
    except Misconfigured as error:
        print(error)
        return 1
    reason = asyncio.run(Bubblewrap.selftest())
    print(reason)
    return int(reason is not None)
