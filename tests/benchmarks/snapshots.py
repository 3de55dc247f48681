"""What a snapshot after a step costs in a workspace of 10,000 files: one of them changed, or none."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from deputize.shared.request import EmptyWorkspace
from deputize.worker.workspace.workspace import Workspace
from tests.benchmarks.number import Number

FILES = 10_000
IN_A_FOLDER = 20
ROUNDS = 20


async def measure(runs: int) -> list[Number]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        workspace = await Workspace.create(EmptyWorkspace(), "dlg_1", Path(folder))
        for number in range(FILES):
            path = workspace.path / f"folder_{number // IN_A_FOLDER}" / f"{number}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"x = {number}\n" * 20)
        workspace.close()
        (Path(folder) / "dlg_1/start.json").unlink()  # so that they are there from the start
        workspace = await Workspace.open("dlg_1", Path(folder))
        changed, unchanged = list[tuple[float, float]](), list[tuple[float, float]]()
        for _ in range(runs):
            changed.append(await _milliseconds(workspace, lambda at: _write(workspace, at)))
            unchanged.append(await _milliseconds(workspace, lambda at: None))
        workspace.close()
    return [
        Number("snapshot after a step on 10,000 files, one of them changed", "ms", [each for each, _ in changed], 60),
        Number("… CPU", "ms", [cpu for _, cpu in changed]),
        Number("… none changed", "ms", [each for each, _ in unchanged], 25),
        Number("… CPU", "ms", [cpu for _, cpu in unchanged]),
    ]


def _write(workspace: Workspace, at: int) -> None:
    workspace.files.write("folder_7/147.py", f"y = {at}\n".encode() * 20)


async def _milliseconds(workspace: Workspace, change: Callable[[int], None]) -> tuple[float, float]:
    """The middle one of several, by the clock and of the CPU."""
    took: list[tuple[float, float]] = []
    for at in range(ROUNDS):
        change(time.perf_counter_ns())
        begun, cpu = time.perf_counter(), time.process_time()
        await workspace.note_changes(f"step {at} {begun}")
        took.append(((time.perf_counter() - begun) * 1000, (time.process_time() - cpu) * 1000))
    return median(each for each, _ in took), median(cpu for _, cpu in took)
