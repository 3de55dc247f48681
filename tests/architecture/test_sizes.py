"""The size limits of files and functions. A file is one theme; what does not fit is two."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.sources import PACKAGES, ROOT, name, python_files, tree

FILE_ROOF = 450
FUNCTION_ROOF = 40
LOOP_FUNCTION_ROOF = 25
LOOP = ("worker/loop.py", "worker/tool_calls.py")
ROOFS = {
    "worker/loop.py": 150,
    "worker/tool_calls.py": 150,
    "worker/tools/base.py": 220,
    "worker/tools/*.py": 150,
}
NOT_ONE_OF_MANY = {
    "worker/tools/__init__.py",
    "worker/tools/artifacts.py",
    "worker/tools/call_subagent.py",
    "worker/tools/pages.py",
    "worker/tools/skills.py",
}


def roof(path: str) -> int:
    if path not in NOT_ONE_OF_MANY:
        for pattern, lines in ROOFS.items():
            if ROOT.joinpath(path).match(str(ROOT / pattern)):
                return lines
    return FILE_ROOF


def test_no_file_is_longer_than_its_roof() -> None:
    sizes = {name(path): len(path.read_text("utf-8").splitlines()) for path in python_files(*PACKAGES, "tests")}
    assert [f"{path}: {size} lines, at most {roof(path)}" for path, size in sizes.items() if size > roof(path)] == []


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("worker/loop.py", 150),
        ("worker/run.py", 450),
        ("worker/tools/grep.py", 150),
        ("worker/tools/base.py", 220),
        ("worker/tools/pages.py", 450),
        ("worker/tools/__init__.py", 450),
        ("tests/worker/tools/test_grep.py", 450),
    ],
)
def test_the_roof_of_a_file(path: str, lines: int) -> None:
    assert roof(path) == lines


def test_no_function_is_longer_than_its_roof() -> None:
    too_long = []
    for path in python_files(*PACKAGES):
        most = LOOP_FUNCTION_ROOF if name(path) in LOOP else FUNCTION_ROOF
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > most:
                    too_long.append(f"{name(path)}:{node.lineno} {node.name}: {lines} lines, at most {most}")
    assert too_long == []
