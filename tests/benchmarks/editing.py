"""How long an edit takes whose old text is only nearly right: every exact way is tried first, then the likeness."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from deputize.worker.text.replacement import WORDING
from tests.benchmarks.number import Number
from tests.runs.toolbench import open_toolbench

ROUNDS = 20


async def measure(runs: int) -> list[Number]:
    usual = [await _milliseconds(lines=2000, quoted=20) for _ in range(runs)]
    long = [await _milliseconds(lines=2000, quoted=500) for _ in range(runs)]
    huge = [await _milliseconds(lines=20_000, quoted=1000) for _ in range(runs)]
    return [
        Number("edit_file with the fuzzy fallback, 20 of 2,000 lines", "ms", usual, at_most=50),
        Number("… 500 of 2,000 lines", "ms", long, at_most=50),
        Number("… 1,000 of 20,000 lines (1 MB)", "ms", huge),
    ]


async def _milliseconds(*, lines: int, quoted: int) -> float:
    """The middle one of several calls of the tool: reading, finding, merging, comparing and writing."""
    source = [f"    value_{number} = compute(number={number}, other='{number * 7}')" for number in range(lines)]
    old = "\n".join(source[lines // 2 :][:quoted]).replace("number", "nmber")
    took: list[float] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, open_toolbench(Path(folder) / "workspace") as desk:
        for _ in range(ROUNDS):
            desk.write("a.py", "\n".join(source))
            begun = time.perf_counter()
            result = await desk.call(
                "edit_file", path="a.py", old_string=old, new_string=old.replace("compute", "calculate")
            )
            took.append((time.perf_counter() - begun) * 1000)
            assert result.metadata["tolerated"] == WORDING, result.for_model
    return median(took)
