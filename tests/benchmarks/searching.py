"""How long grep and glob take on a large tree, beside what ripgrep alone takes for the same question.

The tools are called as the loop calls them: grep in its sandbox, answers sorted, numbered and cut.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.environment import owner
from tests.benchmarks.number import Number
from tests.runs.toolbench import Toolbench, open_toolbench

RIPGREP = shutil.which("rg", path=os.pathsep.join([str(Path(sys.executable).parent), os.defpath])) or "rg"
FILES = 10_000
ROUNDS = 15
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")
QUESTIONS: Mapping[str, tuple[str, dict[str, Any], list[str]]] = {
    "grep, 50 lines match": ("grep", {"pattern": "needle"}, ["-n", "needle"]),
    "grep, 28,000 lines match": ("grep", {"pattern": "alpha beta"}, ["-n", "alpha beta"]),
    "glob, 5,000 files match": ("glob", {"pattern": "**/*.py"}, ["--files", "-g", "**/*.py", "--sortr=modified"]),
}
"""What is asked: a tool and its arguments, and ripgrep's for the same."""


async def measure(runs: int) -> list[Number]:
    if reason := await Bubblewrap.selftest():
        raise RuntimeError(f"no sandbox here: {reason}")
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in QUESTIONS}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        root = Path(folder) / "workspace"
        grow(root)
        with Bubblewrap(root) as sandbox, open_toolbench(root, sandbox=sandbox) as desk:
            for _ in range(runs):
                for name, question in QUESTIONS.items():
                    took[name].append(await _compared(desk, *question))
    numbers: list[Number] = []
    for name, pairs in took.items():
        over = [ours - 2 * raw for ours, raw in pairs]
        numbers.append(Number(f"{FILES:,} files: {name}, beyond twice ripgrep alone", "ms", over, at_most=20))
        numbers.append(Number("… the tool", "ms", [ours for ours, _ in pairs]))
        numbers.append(Number("… ripgrep alone", "ms", [raw for _, raw in pairs]))
    return numbers


async def _compared(
    desk: Toolbench, tool: str, arguments: Mapping[str, Any], argv: Sequence[str]
) -> tuple[float, float]:
    """The middle one of several calls, and of as many of ripgrep in between: what else the machine does hits both."""
    ours: list[float] = []
    raw: list[float] = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        assert (await desk.call_with(tool, arguments)).success
        ours.append((time.perf_counter() - begun) * 1000)
        begun = time.perf_counter()
        subprocess.run([RIPGREP, *argv, "."], cwd=desk.root, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        raw.append((time.perf_counter() - begun) * 1000)
    return median(ours), median(raw)


def grow(root: Path) -> None:
    """A tree of many small files in many directories, one file in 200 with the needle."""
    chance = random.Random(7)
    for number in range(FILES):
        folder = root / f"package_{number % 100:02d}" / f"module_{number // 100 % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [" ".join(chance.choices(WORDS, k=8)) for _ in range(40)]
        lines += ["here is a needle"] * (number % 200 == 0)
        path = folder / f"file_{number}.{'py' if number % 2 else 'txt'}"
        path.write_text("\n".join(lines))
    (root / ".gitignore").write_text("*.log\nbuild/\nnode_modules\n__pycache__/\n*.py[co]\n/dist\n")
    if ids := owner():
        for path in (root, *root.rglob("*")):
            os.chown(path, *ids)
