"""Bash itself shows what a line runs: each program that it starts was judged, or the line was not plain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from deputize.worker.policy.shell import CommandLine, Decision, classify_line
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from tests.worker.policy.shell.bash_grammar import PROGRAMS, random_line
from tests.worker.sandbox.sandboxes import bash, sandbox_over

pytestmark = pytest.mark.system

SEED = 21
LINES = 250
STUB = '#!/bin/sh\nprintf "%s\\0" "${0##*/}" "$@" "\1" >> "${ORACLE:-/workspace/lost}"\n'
"""Notes its name and its arguments in one write: those of a pipeline run at once."""
BATCH = 20
"""Lines that one sandbox runs: after a second it gets little of a busy processor."""
DRIVER = """
mkdir -p /workspace/in /workspace/out; cd /workspace/in; touch src f x
number=$1
while IFS= read -rd '' line; do
    number=$((number + 1))
    ORACLE=/workspace/out/$number PATH=/workspace/programs /usr/bin/timeout -s KILL 0.5 \
        /bin/bash --noprofile --norc -c "$line" </dev/null >/dev/null 2>&1
done < /workspace/lines
true
"""


async def run_by_bash(sandbox: Bubblewrap, folder: Path, lines: Sequence[str]) -> list[list[tuple[str, ...]]]:
    """What each line started, with its arguments, in a directory where every program is one that notes that."""
    (folder / "programs").mkdir()
    for name in (*PROGRAMS, "bash"):
        (folder / "programs" / name).write_text(STUB)
        (folder / "programs" / name).chmod(0o755)
    for begin in range(0, len(lines), BATCH):
        (folder / "lines").write_text("".join(f"{line}\0" for line in lines[begin : begin + BATCH]), newline="")
        done = await sandbox.run(bash(f"set -- {begin}\n{DRIVER}", 300))
        assert done.exit_code == 0, done.stderr
    assert not (folder / "lost").exists()
    found: list[list[tuple[str, ...]]] = []
    for number in range(1, len(lines) + 1):
        noted = folder / "out" / str(number)
        records = noted.read_text().split("\0\1\0")[:-1] if noted.exists() else []
        found.append([tuple(each.split("\0")) for each in records])
    return found


def surprises(line: CommandLine, started: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """What bash started and the classification does not know: for words without patterns with the same arguments."""
    if not line.commands:
        return []
    known = {each.words for each in line.commands} | {
        each.words[:1] for each in line.commands if _has_pattern(each.words)
    }
    return [each for each in started if each not in known and each[:1] not in known]


def _has_pattern(words: Sequence[str]) -> bool:
    return any(char in word for word in words for char in "*?[")


async def compared(tmp_path: Path, seed: int, count: int) -> Counter[str]:
    random = Random(seed)
    lines = list({random_line(random): None for _ in range(count)})
    with sandbox_over(tmp_path / "ws") as sandbox:
        started = await run_by_bash(sandbox, tmp_path / "ws", lines)
    counts: Counter[str] = Counter()
    for line, programs in zip(lines, started, strict=True):
        found = classify_line(line)
        assert surprises(found, programs) == [], line
        assert found.decision is not Decision.ALLOW or not {"sudo", "touch", "make"} & {each[0] for each in programs}
        counts["plain" if found.commands else "not plain"] += 1
        counts[found.decision] += 1
        counts["started"] += len(programs)
    return counts


@pytest.mark.costly
async def test_each_program_that_bash_starts_was_judged_or_the_line_is_not_plain(tmp_path: Path) -> None:
    counts = await compared(tmp_path, SEED, LINES)
    assert min(counts["plain"], counts["not plain"], counts["started"]) > LINES / 5
