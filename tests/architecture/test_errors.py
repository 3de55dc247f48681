"""The tree in shared/errors.py names every exception that one file raises and another one may meet."""

from __future__ import annotations

import ast
import builtins
import inspect
import re

from deputize.shared import errors
from tests.architecture.sources import PACKAGES, dotted, nodes, python_files, tree

EXCEPTIONS = {
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
}
BRANCH = re.compile(r"^(?P<indent>[ │├└─]*?)(?P<name>[A-Z]\w*)(?:  +\S.*)?$")
Edge = tuple[str, str]
"""The name of the base and that of the exception."""


def defined(modules: list[ast.Module]) -> list[Edge]:
    """The public exceptions of the modules; one that begins with an underscore stays in its file."""
    bases = [
        (dotted(base).rpartition(".")[2], node.name)
        for module in modules
        for node in nodes(module)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    ]
    known, before = set(EXCEPTIONS), -1
    while len(known) != before:
        before = len(known)
        known |= {name for base, name in bases if base in known or base.endswith(("Error", "Exception"))}
    return sorted((base, name) for base, name in bases if name in known and not name.startswith("_"))


def drawn(text: str) -> list[Edge]:
    """The edges of the trees in a text, drawn with box characters four columns per level."""
    above: list[str] = []
    edges: list[Edge] = []
    for line in text.splitlines():
        if not (found := BRANCH.match(line)) or not line.startswith("    "):
            continue
        level = len(found["indent"]) // 4 - 1
        if level:
            edges.append((above[level - 1], found["name"]))
        above[level:] = [found["name"]]
    return sorted(edges)


def test_the_error_tree_is_that_of_the_code() -> None:
    code = defined([tree(path) for path in python_files(*PACKAGES)])
    assert drawn(inspect.getdoc(errors) or "") == [edge for edge in code if edge != ("Exception", "DeputizeError")]


def test_a_branch_hangs_below_the_one_above_it() -> None:
    text = (
        "Errors:\n\n    A\n    ├── B      a word\n    │   └── C  Two words\n    └── D\n    E\n    └── F\n\nAfterwards."
    )
    assert drawn(text) == [("A", "B"), ("A", "D"), ("B", "C"), ("E", "F")]


def test_an_exception_is_recognized_by_its_base_wherever_that_is_defined() -> None:
    modules = [
        ast.parse("class B(A): ...\nclass D: ...\nclass _E(A): ..."),
        ast.parse("class A(ValueError): ...\nclass C(lib.ConnectError): ..."),
    ]
    assert defined(modules) == [("A", "B"), ("ConnectError", "C"), ("ValueError", "A")]
