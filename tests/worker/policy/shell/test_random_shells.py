"""Forbidden programs at random places of random lines: all are denied, and bash really starts them there."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from deputize.worker.policy.shell import Decision, classify_line

PROGRAMS = ("sudo", "doas", "pkexec", "su")
_BARE: Sequence[Callable[[str], str]] = (
    lambda name: f"{name} id",
    lambda name: f"'{name}' id",
    lambda name: f'"{name[0]}"{name[1:]} id',
    lambda name: f"\\{name} id",
    lambda name: f"{name[0]}''{name[1:]} id",
    lambda name: f"{name[0]}\\\n{name[1:]} id",
    lambda name: f"$'\\x{ord(name[0]):02x}{name[1:]}' id",
    lambda name: f"A=1 {name} id",
    lambda name: f"2>&1 {name} id",
    lambda name: f"command {name} id",
    lambda name: f"env A=1 {name} id",
    lambda name: f"timeout 5 {name} id",
    lambda name: f"nice -n 1 {name} id",
    lambda name: f"exec {name} id",
    lambda name: f"echo x | xargs {name}",
    lambda name: f"find . -maxdepth 0 -exec {name} {{}} \\;",
    lambda name: f"{{{name},id}}",
    lambda name: f"X={name}; $X id",
    lambda name: f"$(echo {name}) id",
    lambda name: f"${{NONE:-{name}}} id",
)
_SCRIPTS = (
    "bash -c @", "bash -ec @", "eval @", "timeout 9 bash -c @", "env B=2 bash -c @", "echo x | xargs -I% bash -c @",
    "find . -maxdepth 0 -exec bash -c @ \\;", "bash <<< @", "printf '%s\\n' @ | bash", "trap @ EXIT",
    "bash <(printf '%s\\n' @)",
)  # fmt: skip
"""Lines that execute a quoted text, which takes the place of @."""
_NESTED = (
    "true; @", "true && @", "false || @", "ls | { @\n}", "{ @\n}", "( @\n)", "if true; then @\nfi",
    "if @\nthen :; fi", "if false; then :; else @\nfi", "for i in 1; do @\ndone", "for ((i=0; i<1; i++)); do @\ndone",
    "until @\n[ -d . ]; do :; done", "case a in b) ls;; *) @\n;; esac", "f() { @\n}; f", "echo $( @\n)",
    'echo "x$( @\n)"', "echo ${NONE:-$( @\n)}", "X=$( @\n)", "echo $((1 + $( @\necho 0\n) * 0))", "cat < <( @\n)",
    "[[ -n $( @\n) || -d . ]]", "cat <<< $( @\n)", "! { @\n}", "time { @\n}", "{ @\n} & wait", "coproc { @\n}; wait",
    "ls > $( @\necho /dev/null)",
)  # fmt: skip
"""Lines that run another one in the place of @."""


def random_line(random: Random) -> str:
    """A line that runs one of PROGRAMS."""
    line = random.choice(_BARE)(random.choice(PROGRAMS))
    for _ in range(random.randint(0, 4)):
        if random.random() < 0.4:
            line = random.choice(_SCRIPTS).replace("@", shlex.quote(line))
        else:
            nested = random.choice(_NESTED)
            if "$((1 +" in nested and ">&" in line:  # its output would be no number
                nested = "( @\n)"
            line = nested.replace("@", line)
    return line


SEED = 20
LINES = 10_000


def random_lines(seed: int, count: int) -> list[str]:
    """Different lines."""
    random = Random(seed)
    lines: dict[str, None] = {}
    while len(lines) < count:
        lines[random_line(random)] = None
    return list(lines)


@pytest.mark.costly
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
