"""Honest runs on real packages: one line of a released package is broken, and the run mends it.

`python -m tests.verdict.real_packages [NAME…] [--parallel N]` prints what the package's own tests make of each. A row
has ``package`` (with its version), ``path`` (the file), ``right`` (a line that is there once) and ``wrong`` (what takes
its place before the run), and ``run`` (the check, as in ``strangers.py``). The source distributions are downloaded at
their first use.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tarfile
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.verdict.strangers import DATA, PLACE, Stranger, try_all


@dataclass(frozen=True)
class RealPackage:
    """One row."""

    package: str
    path: str
    right: str
    wrong: str
    run: str

    def __str__(self) -> str:
        return f"{self.package.partition('==')[0]}-{'-'.join(re.findall('[A-Za-z]+', self.right))}"

    def stranger(self, place: Path = PLACE / "packages") -> Stranger:
        """Returns the run. Raises CalledProcessError where the registry does not have the package, or not answer."""
        files = self._files(place)
        mended = files[self.path].decode()
        assert mended.count(self.right) == 1, f"{self.path} of {self.package} does not have {self.right!r} once"
        before = {**files, self.path: mended.replace(self.right, self.wrong).encode()}
        row = {
            "files": {path: {"base64": b64encode(data).decode()} for path, data in before.items()},
            "turns": [[["tool", "write_file", {"path": self.path, "content": mended}]], ["Mended."]],
            "verify": [self.run],
            "request": {"maxVerifyRounds": 0},
            "expect": "verified",
        }
        return Stranger(str(self), row)

    def _files(self, place: Path) -> Mapping[str, bytes]:
        folder = place / self.package
        if not [*folder.glob("*.tar.gz")]:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
            subprocess.run([*pip, "-d", folder, self.package], check=True, capture_output=True)
        with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
            members = [each for each in archive.getmembers() if each.isfile()]
            read = {each.name.partition("/")[2]: archive.extractfile(each) for each in members}
            return {path: file.read() for path, file in read.items() if file is not None}


ROWS = [RealPackage(**json.loads(line)) for line in (DATA / "real-packages.jsonl").read_text("utf-8").splitlines()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.verdict.real_packages", description="Runs on real packages.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only rows whose names have one of these in them")
    parser.add_argument("--parallel", type=int, default=2, metavar="N", help="rows at the same time; default: 2")
    given = parser.parse_args()
    wanted = [each for each in ROWS if not given.names or any(name in str(each) for name in given.names)]
    sys.exit(min(1, asyncio.run(try_all([each.stranger() for each in wanted], given.parallel))))
