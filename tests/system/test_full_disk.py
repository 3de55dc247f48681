"""A run that fills the disk loses what it wrote, and nothing else: not the record's store, and no other run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.sampling import sampled
from tests.system.disk_filler import DELEGATIONS, KINDS, reserves
from tests.system.stack_processes import ROOT

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounting a small disk is root's"),
]
MOUNTED = (
    'mount -t tmpfs -o size=60m,nr_inodes=20000,mode=755 tmpfs "$1"; "$0" -m tests.system.disk_filler "$1" "$2"; '
    'flock "$1/home/supervisor.lock" true'
)


def filled(kind: str) -> dict[str, Any]:
    """What came of an honest run beside one of this kind, on a disk of 60 MB."""
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        Path(folder).chmod(0o755)
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", MOUNTED, sys.executable, folder, kind],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout, done.stderr[-2000:]
        return json.loads(done.stdout)


@pytest.mark.parametrize(
    "kind", ["a file over and over", "one reply"]
)  # the others: `python -m tests.system.disk_filler`
def test_a_run_whose_record_fills_the_disk_ends_before_the_store_does(kind: str) -> None:
    found = filled(kind)
    assert (found["honest"], found["starts"]) == (["completed", 1], 1)
    assert found["hostile"] == ["budget", 1]
    assert "the disk of all records takes only" in found["errors"][0]


def test_a_caller_whose_delegations_fill_the_disk_is_refused_before_the_store_ends() -> None:
    found = filled(DELEGATIONS)
    assert (found["honest"], found["starts"]) == (["completed", 1], 1)
    assert "no space left at" in found["summary"]


@pytest.mark.parametrize("kind", sampled({kind: kind for kind in KINDS}, 4))
def test_a_run_that_fills_the_disk_loses_its_files_and_everything_goes_on(kind: str) -> None:
    found = filled(kind)
    assert (found["honest"], found["hostile"], found["starts"]) == (["completed", 1], ["completed", 1], 1)
    *written, next_command = found["answers"]
    assert next_command == "went on|"
    # The kernel takes back itself what a killed `fallocate` had reserved: then nothing is left to be removed.
    ends = ["what this run had written was removed: "] + ["less than sandbox.share leaves to others"] * reserves(kind)
    # The output of a background command that was killed is not read here.
    assert kind == "background" or any(end in each for each in written for end in ends), written
