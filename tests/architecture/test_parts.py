"""A part is removed by deleting what it is made of and its row in the table: the core knows none of them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, python_files
from tests.architecture.tree_copy import copy_of_the_tree, run_in, run_tests_in

FILES = {
    "handover": ["worker/parts/handover.py"],
    "metrics": ["worker/parts/metrics.py"],
    "webhook": ["worker/parts/notifications.py"],
    "merge": ["worker/merges"],
    "tournament": ["worker/tournament"],
    "rounds": ["worker/verification/rounds.py"],
    "failover": ["worker/parts/failover.py"],
    "subagents": ["worker/parts/subagents.py", "worker/subagents"],
    "maintenance": ["worker/parts/maintenance.py"],
    "retry": ["worker/parts/retry.py"],
    "claims": ["worker/verification/summary_claims.py"],
    "delivery": ["worker/parts/delivery.py"],
    "proof": ["worker/parts/proof.py", "worker/proofs"],
}
LEFT = ["traces", "reading", "instructions", "snapshots", "permission", "economy", "caps"]
OF_THE_CORE = (
    *(f"tests/worker/core/test_{name}.py" for name in ("emit", "ledger", "loop", "prompt", "run_context")),
    "tests/fundamentals/test_14_the_loop_alone.py",
)
"""A sample that ends in seconds."""
WORKER = "import deputize.worker.__main__, deputize.worker.task, deputize.worker.parts.table, deputize.worker.core.run"


def without(table: str, row: str) -> str:
    """The source of the table without one of its rows, and without the import or the function of its part."""
    maker = re.search(rf'Row\("{row}", (\w+)\),', table)
    assert maker, row
    table = re.sub(rf'    Row\("{row}", .*\n', "", table)
    table = re.sub(rf"def {maker[1]}\(.*?\n\n\n", "", table, flags=re.DOTALL)
    return re.sub(rf"from \S+ import {maker[1]}\n", "", table)


def without_all(table: str) -> str:
    for row in FILES:
        table = without(table, row)
    return re.sub(r"from \.notifications .*\n", "", table)  # which a function names


@pytest.mark.costly
@pytest.mark.long
def test_without_the_parts_a_worker_is_imported_and_the_tests_of_the_core_pass(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path)
    table = tree / "worker/parts/table.py"
    table.write_text(without_all(table.read_text()))
    for path in (tree / name for names in FILES.values() for name in names):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert re.findall(r'Row\("(\w+)"', table.read_text()) == LEFT
    assert run_in(tree, "-c", WORKER) == (0, "")
    code, output = run_tests_in(tree, *OF_THE_CORE)
    assert code == 0, output


def test_the_core_names_no_part() -> None:
    named = re.compile(r"\b(?:merges|verification|delivery|subagents|permission|spending)\b|summary_claims")
    core = [path for path in python_files("worker") if path.parent == ROOT / "worker/core"]
    assert core
    for path in core:
        imports = re.findall(r"^\s*(?:from|import) \.\.(?!\.).*", path.read_text(), re.MULTILINE)
        assert [line for line in imports if named.search(line)] == [], path.relative_to(ROOT)
