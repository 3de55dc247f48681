"""Imports point one way, and the environment is read once."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGES, ROOT, dotted, name, python_files, tree

ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def test_the_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def reads_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(alias.name in ENVIRONMENT for alias in node.names)
    return isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT and dotted(node.value) == "os"


def test_only_the_settings_read_the_environment() -> None:
    readers = {name(path) for path in python_files(*PACKAGES) if any(map(reads_environment, ast.walk(tree(path))))}
    assert readers == {"shared/settings/variables.py"}


@pytest.mark.parametrize("line", ["os.environ['A']", "x = os.getenv('A')", "from os import environ as e"])
def test_every_way_to_the_environment_is_seen(line: str) -> None:
    assert any(map(reads_environment, ast.walk(ast.parse(line))))
