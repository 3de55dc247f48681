"""Imports point one way, and the environment is read once."""

from __future__ import annotations

import ast
import json
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


def test_help_loads_neither_the_models_sdk_nor_celery() -> None:
    if not any(ROOT.glob("orchestrator/cli/__init__.py")):
        pytest.skip("there is no command line yet")
    script = (
        "import json, sys\n"
        "from deputize.orchestrator.cli import main\n"
        "sys.argv = ['deputize', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules} & {'anthropic', 'celery', 'kombu', 'mcp'})))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []
