"""The floor plan: nothing imports itself in a circle, and the worker's top holds the run and little else."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set

import pytest

from tests.architecture.sources import PACKAGES, ROOT, imported_from, module_of, name, python_files, tree

LOOSE_FILES = 20

Graph = Mapping[str, Set[str]]


def imports(source: ast.Module, package: str, known: Set[str]) -> Iterator[str]:
    """The known modules that a file of the package imports, wherever: for types only, or inside a function."""
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            module = imported_from(node, package)
            for alias in node.names:
                inside = f"{module}.{alias.name}"
                if inside in known or module in known:
                    yield inside if inside in known else module


def graph_of(*packages: str) -> Graph:
    paths = {module_of(path): path for path in python_files(*packages)}
    return {
        module: {*imports(tree(path), module_of(path.parent), paths.keys())} - {module}
        for module, path in paths.items()
    }


def circles(graph: Graph) -> list[list[str]]:
    """Every group of modules that reach each other."""
    below = {module: _reached(graph, module) for module in graph}
    found = {frozenset(other for other in below[one] if one in below[other]) for one in graph if one in below[one]}
    return sorted(map(sorted, found))


def _reached(graph: Graph, start: str) -> Set[str]:
    seen: set[str] = set()
    left = [*graph[start]]
    while left:
        module = left.pop()
        if module not in seen:
            seen.add(module)
            left += graph[module]
    return seen


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_imports_itself_in_a_circle(package: str) -> None:
    assert circles(graph_of(package)) == []


def test_a_circle_is_seen_also_through_a_third_file() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert circles(graph) == [["a", "b", "c"]]


@pytest.mark.parametrize(
    "text",
    [
        "import deputize.worker.loop",
        "from deputize.worker.loop import Loop",
        "from deputize.worker import loop",
        "from .loop import Loop",
        "from . import loop",
        "from ..worker.loop import Loop",
        "if TYPE_CHECKING:\n    from .loop import Loop",
        "def later():\n    from .loop import Loop",
    ],
)
def test_every_way_to_import_a_file_counts(text: str) -> None:
    known = {"deputize.worker", "deputize.worker.loop"}
    assert [*imports(ast.parse(text), "deputize.worker", known)] == ["deputize.worker.loop"]


def test_few_files_lie_loose_at_the_top_of_the_worker() -> None:
    loose = [name(path) for path in python_files("worker") if path.parent == ROOT / "worker"]
    assert "worker/loop.py" in loose
    assert len(loose) <= LOOSE_FILES, "a file that is not the run itself belongs into a room"
