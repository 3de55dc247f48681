"""How many lines of this project a module loads: what an engineer has to know in order to change it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.runs.record import Claim
from deputize.worker.core.run_context import RunContext
from tests.architecture.sources import ROOT

ROOFS = {
    "worker.core.loop": 10_400,
    "worker.core.limits": 3_400,
    "worker.tools.base": 4_400,
    "worker.core.run": 11_200,
}
"""The most lines that importing a module may load. They only come down.

To lower one: find an import of a package in the modules that the failed test lists, import a protocol of what is needed
instead, and let the caller pass the package's object.
"""
SLACK = 600
"""A roof is lowered where the lines are further below it. Within it, files may grow without a change here."""
SCRIPT = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
own = {name: module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "deputize"}
print(json.dumps({name: path for name, path in own.items() if path}))
"""


def loaded_lines(module: str) -> dict[str, int]:
    """The modules of this project that a fresh interpreter loads for one of them, with their lines."""
    command = [sys.executable, "-c", SCRIPT, f"deputize.{module}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths: dict[str, str] = json.loads(done.stdout)
    return {name: len(Path(path).read_text("utf-8").splitlines()) for name, path in paths.items()}


@pytest.mark.parametrize("module", ROOFS)
def test_a_module_of_the_core_loads_few_lines(module: str) -> None:
    lines = loaded_lines(module)
    total, roof = sum(lines.values()), ROOFS[module]
    largest = sorted(lines, key=lambda name: -lines[name])
    assert total <= roof, f"{module} loads {total} lines of {len(lines)} modules, at most {roof}; {largest}"
    assert total > roof - SLACK, f"{module} loads {total} lines: lower its roof of {roof}"


def test_the_lines_of_an_import_inside_a_package_are_counted() -> None:
    lines = loaded_lines("shared.runs.keys")
    assert {"deputize.shared", "deputize.shared.runs", "deputize.shared.runs.keys"} <= lines.keys()
    assert lines["deputize.shared.runs.keys"] == len((ROOT / "shared/runs/keys.py").read_text("utf-8").splitlines())


@pytest.mark.parametrize(("kind", "most"), [(Claim, 15), (RunContext, 9)])
def test_what_a_run_is_has_few_fields(kind: type[Any], most: int) -> None:
    """A capability that only some runs have keeps its own by name, in ``kept`` of both."""
    assert len(fields(kind)) <= most, [each.name for each in fields(kind)]


def test_one_attempt_is_a_file_of_few_lines() -> None:
    assert len((ROOT / "worker/core/run.py").read_text("utf-8").splitlines()) <= 250
