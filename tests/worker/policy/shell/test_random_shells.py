"""Forbidden programs at random places of random lines: all are denied, and bash really starts them there."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from deputize.worker.policy.shell.classify import Decision, classify_line
from tests.worker.policy.shell.random_shells import PROGRAMS, random_line

SEED = 20
LINES = 10_000


def random_lines(seed: int, count: int) -> list[str]:
    """Different lines."""
    random = Random(seed)
    lines: dict[str, None] = {}
    while len(lines) < count:
        lines[random_line(random)] = None
    return list(lines)


@pytest.mark.requirement("S001-033", "S002-068")
def test_of_ten_thousand_lines_with_a_forbidden_program_none_is_allowed() -> None:
    found = Counter(classify_line(line).decision for line in random_lines(SEED, LINES))
    assert found == {Decision.DENY: LINES}


def test_bash_starts_the_program_of_every_random_line(tmp_path: Path) -> None:
    programs, started = tmp_path / "programs", tmp_path / "started"
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).write_text(f"#!/bin/sh\n: > {started}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "work").mkdir()
    variables = {"PATH": f"{programs}:{os.defpath.strip(':')}:/usr/bin:/bin", "HOME": str(tmp_path)}
    for line in random_lines(SEED, 60):
        argv = ["bash", "--norc", "--noprofile", "-c", line]
        subprocess.run(argv, cwd=tmp_path / "work", env=variables, capture_output=True, check=False, timeout=30)
        assert started.exists(), line
        started.unlink()
