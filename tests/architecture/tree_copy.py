"""A copy of the project's tree, for tests that change it and then run tests there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT


def copy_of_the_tree(folder: Path) -> Path:
    ignored = shutil.ignore_patterns(".venv", ".git", "__pycache__", ".*_cache")
    return Path(shutil.copytree(ROOT, folder / "tree", symlinks=True, ignore=ignored))


def run_in(tree: Path, *arguments: str) -> tuple[int, str]:
    """Runs a Python program on the packages and tests of this tree; returns its exit code and output."""
    environment = {**os.environ, "PYTHONPATH": str(tree / ".package")}
    done = subprocess.run([sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def run_tests_in(tree: Path, *tests: str, named: str = "") -> tuple[int, str]:
    """Runs these tests of the tree; returns the exit code and the end of the output.

    All other tests are deleted first: those of the architecture read every file that is left. ``named`` is an
    expression for names of tests.
    """
    chosen = {tree / test.partition("::")[0] for test in tests}
    for path in (tree / "tests").rglob("test_*.py"):
        if not chosen & {path, *path.parents}:
            path.unlink()
    chosen_names = ("-k", named) if named else ()
    options = ("-q", "-n0", "-pno:cacheprovider", "-mnot thorough", *chosen_names)
    code, output = run_in(tree, "-m", "pytest", *options, *tests)
    return code, output[-6000:]
