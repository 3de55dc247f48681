"""How tests are written: none sleeps, none patches our own code, and each is named by a short sentence."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGES, ROOT, dotted, name, nodes, python_files, tree

MAY_SLEEP = (
    "tests/waiting.py",  # the one place that waits
    "tests/benchmarks/",  # models that take their time, by measure
    "tests/system/storm/",  # the pace of a storm is what it is about
    "tests/worker/celery_pool/pool_worker.py",  # a worker whose jobs last as long as a test decides
)

SHORTEST_NAME, LONGEST_NAME = 20, 85
COSTLY = 128
"""Tests that only CI executes: as few as there are, so that `make test` still tries each kind of thing."""


def sleeps(node: ast.AST) -> bool:
    """``sleep(…)`` of any module; ``sleep(0)`` only lets others run and is no waiting."""
    if not (isinstance(node, ast.Call) and dotted(node.func).rsplit(".", 1)[-1] == "sleep"):
        return False
    return not (len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)


def test_no_test_of_ours_sleeps() -> None:
    sleepers = [
        f"{name(path)}:{node.lineno}"
        for path in python_files("tests")
        if not name(path).startswith(MAY_SLEEP)
        for node in nodes(tree(path))
        if isinstance(node, ast.Call) and sleeps(node)
    ]
    assert sleepers == [], "wait for a condition (tests/waiting.py) or for an Event, bounded by a timeout"


def test_few_tests_are_left_to_ci() -> None:
    marked = [
        f"{name(path)}:{node.lineno}"
        for path in python_files("tests")
        for node in nodes(tree(path))
        if isinstance(node, ast.Attribute) and dotted(node) == "pytest.mark.costly"
    ]
    assert COSTLY - 5 <= len(marked) <= COSTLY, "make a costly test cheaper for each new one"


def patches(module: ast.Module) -> Iterator[int]:
    """Lines that replace a part of our own code, or use ``unittest.mock.patch`` at all."""
    ours = _imported_from_us(module)
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom) and node.module in ("unittest.mock", "mock"):
            if any(alias.name == "patch" for alias in node.names):
                yield node.lineno
        elif isinstance(node, ast.Attribute) and dotted(node).startswith(("mock.patch", "unittest.mock.patch")):
            yield node.lineno
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("monkeypatch.setattr") and node.args:
            target = node.args[0]
            text = str(target.value) if isinstance(target, ast.Constant) else dotted(target)
            if text.split(".")[0] in ours | {"deputize"}:
                yield node.lineno


def _imported_from_us(module: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "deputize":
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname for alias in node.names if alias.asname and alias.name.split(".")[0] == "deputize"}
    return found


def test_no_test_replaces_a_part_of_our_own_code() -> None:
    found = [f"{name(path)}:{line}" for path in python_files("tests") for line in patches(tree(path))]
    assert found == [], "use a real double: the scripted model, the in-memory bus, a local server"


@pytest.mark.parametrize(
    "source",
    [
        "from unittest.mock import patch",
        "import deputize.worker.task\ndef test(monkeypatch): monkeypatch.setattr(deputize.worker.task, 'ask', None)",
        "from deputize.shared import bus as b\ndef test(monkeypatch): monkeypatch.setattr(b, 'publish', None)",
        "def test(monkeypatch): monkeypatch.setattr('deputize.worker.core.loop.Loop', None)",
    ],
)
def test_every_way_of_patching_is_seen(source: str) -> None:
    assert list(patches(ast.parse(source)))


def test_a_sleep_is_seen_under_every_name() -> None:
    source = "import time\nfrom asyncio import sleep\ntime.sleep(1)\nsleep(0.1)\nsleep(0)"
    assert [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and sleeps(node)] == [
        3,
        4,
    ]


def with_other_lengths(module: ast.Module) -> list[str]:
    """The names of tests that are too short for a sentence, or too long to be read in a list."""
    functions = [node for node in nodes(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    tests = [each.name for each in functions if each.name.startswith("test_")]
    return [each for each in tests if not SHORTEST_NAME <= len(each) <= LONGEST_NAME]


def test_the_name_of_a_test_is_a_sentence_of_one_line() -> None:
    found = {name(path): wrong for path in python_files("tests") if (wrong := with_other_lengths(tree(path)))}
    assert found == {}, f"a name has {SHORTEST_NAME} to {LONGEST_NAME} characters"


@pytest.mark.parametrize(
    ("source", "is_wrong"),
    [
        *(("def test_a_token(): ...", True), ("class A:\n    async def test_b(self): ...", True)),
        *((f"def test_{'x' * 81}(): ...", True), (f"def test_{'x' * 80}(): ...", False), ("def helper(): ...", False)),
    ],
)
def test_every_name_that_is_too_short_or_too_long_is_found(source: str, is_wrong: bool) -> None:
    assert bool(with_other_lengths(ast.parse(source))) is is_wrong


def test_every_test_file_is_collected() -> None:
    """A folder without __init__.py would hide its tests behind another folder's file of the same name."""
    folders = {path.parent for path in python_files("tests") if path.name.startswith("test_")}
    assert [str(folder) for folder in sorted(folders) if not Path(folder, "__init__.py").exists()] == []


def imports_of_tests(module: ast.Module) -> list[str]:
    """The modules of tests that a module imports from."""
    froms = [node.module or "" for node in nodes(module) if isinstance(node, ast.ImportFrom)]
    return [each for each in froms if each.rpartition(".")[2].startswith("test_")]


def test_what_tests_share_lies_in_modules_without_tests() -> None:
    found = {name(path): imports_of_tests(tree(path)) for path in python_files("tests")}
    assert {path: imported for path, imported in found.items() if imported} == {}


def test_folders_of_tests_are_named_as_those_of_the_code() -> None:
    folders = {
        path.parent.relative_to(ROOT / "tests") for path in python_files("tests") if path.stem.startswith("test_")
    }
    ours = [folder for folder in sorted(folders) if folder.parts[0] in PACKAGES]
    assert [str(folder) for folder in ours if not (ROOT / folder / "__init__.py").exists()] == []
