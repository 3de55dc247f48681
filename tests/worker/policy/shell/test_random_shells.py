"""Forbidden programs at random places of random lines: none is allowed, and bash really starts them there."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell import classify_line
from deputize.worker.policy.shell.classification import Classifier
from deputize.worker.policy.shell.parser import installed_parser
from tests.worker.policy.shell.random_shells import PROGRAMS, PreparedParser, random_line

SEED = 20
LINES = 10_000
A_PROCESS = 500
"""Texts that are parsed by one process."""


def random_lines(seed: int, count: int) -> tuple[list[str], list[str]]:
    """Different lines, and the texts that have to be parsed for them."""
    random, texts = Random(seed), list[str]()
    lines: dict[str, None] = {}
    while len(lines) < count:
        lines[random_line(random, texts)] = None
    return list(lines), list(dict.fromkeys(texts))


@pytest.mark.requirement("S001-033", "S002-068")
def test_of_ten_thousand_lines_with_a_forbidden_program_none_is_allowed() -> None:
    lines, texts = random_lines(SEED, LINES)
    parser = PreparedParser(installed_parser())
    for begin in range(0, len(texts), A_PROCESS):
        parser.prepare(texts[begin : begin + A_PROCESS])
    classifier = Classifier(parser.parse)
    found = {line: classifier.classify(line).decision for line in lines}
    assert Counter(found.values()) == {Decision.DENY: LINES}
    assert parser.calls < LINES / 10
    # What many texts in one process are parsed to is what each of them is parsed to.
    for line in lines[:100]:
        assert classify_line(line).decision is found[line]


def test_bash_starts_the_program_of_every_random_line(tmp_path: Path) -> None:
    programs, started = tmp_path / "programs", tmp_path / "started"
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).write_text(f"#!/bin/sh\n: > {started}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "work").mkdir()
    variables = {"PATH": f"{programs}:{os.defpath.strip(':')}:/usr/bin:/bin", "HOME": str(tmp_path)}
    lines, _ = random_lines(SEED, 60)
    for line in lines:
        argv = ["bash", "--norc", "--noprofile", "-c", line]
        subprocess.run(argv, cwd=tmp_path / "work", env=variables, capture_output=True, check=False, timeout=30)
        assert started.exists(), line
        started.unlink()
