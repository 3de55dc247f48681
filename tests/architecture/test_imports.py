"""Imports point one way, and the environment is read once."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGES, ROOT, dotted, name, nodes, python_files, tree

KNOWN_TO_THE_CORE = {
    *("models.base", "models.caching", "models.endings", "models.thinking"),
    *("tools.base", "tools.context", "tools.naming", "tools.traits"),
    *("linux.system", "contracts", "threads"),
}
"""The modules of the worker that its core imports, beside its own: those that ``worker/README.md`` names. They become
only fewer.
"""
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def test_the_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def unresolvable(node: ast.AST, folders: int) -> bool:
    """Whether an import of ours, so many folders deep, is one that a tool which follows no link cannot resolve."""
    if isinstance(node, ast.ImportFrom) and node.level:
        return node.level > folders + 1
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    return any(name.split(".")[0] in {"deputize", *PACKAGES} for name in names)


def test_the_packages_import_each_other_relatively() -> None:
    """``.package`` shows the folders as one package by links, which code search and editors do not follow."""
    assert [
        f"{name(path)}:{node.lineno}"
        for path in python_files(*PACKAGES)
        for node in nodes(tree(path))
        if isinstance(node, ast.stmt) and unresolvable(node, len(path.relative_to(ROOT).parents) - 1)
    ] == []


def test_tests_import_the_package_by_its_name() -> None:
    """Else a module would be loaded twice, under two names."""
    assert [
        f"{name(path)}:{node.lineno}"
        for path in python_files("tests")
        for node in nodes(tree(path))
        if isinstance(node, ast.Import | ast.ImportFrom) and top_of(node) in PACKAGES
    ] == []


def top_of(node: ast.Import | ast.ImportFrom) -> str:
    named = node.names[0].name if isinstance(node, ast.Import) else node.module or ""
    return named.split(".")[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("from deputize.shared.ids import new_id", True),
        ("import deputize.shared.ids", True),
        ("from shared.ids import new_id", True),
        ("from ....shared.ids import new_id", True),
        ("from ...shared.ids import new_id", False),
        ("from . import ids", False),
        ("import json", False),
    ],
)
def test_which_imports_are_unresolvable(line: str, expected: bool) -> None:
    assert unresolvable(ast.parse(line).body[0], folders=2) is expected


def imported_by_the_core() -> set[str]:
    """The modules of other packages of the worker, in any file of the core, also those of type checkers alone."""
    imports = [
        node
        for path in python_files("worker")
        if name(path).startswith("worker/core/")
        for node in nodes(tree(path))
        if isinstance(node, ast.ImportFrom) and node.level == 2
    ]
    return {node.module or alias.name for node in imports for alias in node.names}


def test_the_core_imports_the_modules_that_its_page_names_and_no_others() -> None:
    assert imported_by_the_core() == KNOWN_TO_THE_CORE
    page = (ROOT / "worker/README.md").read_text("utf-8")
    named = {f"{each.replace('.', '/')}.py" for each in KNOWN_TO_THE_CORE}
    assert {each for each in named if f"`worker/{each}`" not in page} == set()


def reads_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(alias.name in ENVIRONMENT for alias in node.names)
    return isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT and dotted(node.value) == "os"


def test_only_the_settings_read_the_environment() -> None:
    readers = {name(path) for path in python_files(*PACKAGES) if any(map(reads_environment, nodes(tree(path))))}
    of_its_own = "orchestrator/examples/slack_approvals.py"
    assert readers == {"shared/settings/variables.py", of_its_own}


def test_only_what_connects_reads_the_proxies_of_the_environment() -> None:
    readers = {name(path) for path in python_files(*PACKAGES) if "getproxies" in path.read_text("utf-8")}
    assert readers == {"orchestrator/client.py", "worker/models/endpoint.py"}


@pytest.mark.parametrize("line", ["os.environ['A']", "x = os.getenv('A')", "from os import environ as e"])
def test_every_way_to_the_environment_is_seen(line: str) -> None:
    assert any(map(reads_environment, ast.walk(ast.parse(line))))
