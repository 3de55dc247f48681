"""Each promise has a test, and each marked test names a promise."""

from __future__ import annotations

import ast
from collections import Counter

from tests.architecture.sources import dotted, name, nodes, python_files, tree
from tests.requirements import requirements

DONE_ISSUES = {"A", "B", "C", "D"}


def marked() -> dict[str, list[str]]:
    """Requirement id → the places of ``@pytest.mark.requirement(…)`` that name it."""
    places: dict[str, list[str]] = {}
    for path in python_files("tests"):
        for node in nodes(tree(path)):
            if isinstance(node, ast.Call) and dotted(node.func).endswith("mark.requirement"):
                for argument in node.args:
                    named = argument.value if isinstance(argument, ast.Constant) else ast.unparse(argument)
                    places.setdefault(str(named), []).append(f"{name(path)}:{node.lineno}")
    return places


def test_the_manifest_is_complete() -> None:
    kinds = Counter(each.kind for each in requirements().values())
    assert kinds == {"B": 147, "D": 111, "E": 31, "N": 6, "R": 44, "P": 23}
    assert {each.issue for each in requirements().values()} <= {"A", "B", "C", "D", "E"}


def test_every_marker_names_a_known_requirement() -> None:
    assert {named: places for named, places in marked().items() if named not in requirements()} == {}


def test_every_requirement_of_the_finished_issues_has_a_test() -> None:
    proven = marked()
    missing = [
        f"{each.id} {each.statement}"
        for each in requirements().values()
        if each.issue in DONE_ISSUES and each.id not in proven
    ]
    assert not missing, f"{len(missing)} requirements without a test:\n" + "\n".join(missing)
