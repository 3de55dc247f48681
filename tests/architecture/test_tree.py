"""The tree explains itself: what lies at the top, names and sizes of files, and no import in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

import pytest

from tests.architecture.sources import (
    PACKAGES,
    ROOT,
    imported_from,
    is_ours,
    module_of,
    name,
    nodes,
    python_files,
    tree,
)

FILE_ROOF = 450
FUNCTION_ROOF = 40
LOOP_FUNCTION_ROOF = 25
LOOP = ("worker/core/loop.py", "worker/core/tool_calls.py")
LOW_ROOF = 150
"""For the loop and for files of tools."""
LONGER = {
    "worker/tools/artifacts.py": (216, "four tools on one store of versions"),
    "worker/tools/base.py": (211, "no tool: the whole contract of tools, which is read in one piece"),
    "worker/tools/call_subagent.py": (192, "half of it is the answer to the model: what a child did, and its patch"),
    "worker/tools/pages.py": (305, "no tool: what several tools read files with"),
    "worker/tools/skills.py": (339, "a tool, and the format and the loader of skills"),
}
"""Files of tools that may be longer: how long, and why. Only ever fewer."""
LONGER_ROOF = 5
"""As many as there are now."""
LOOSE_FILES = 11
"""As many as there are now, and never more."""

Graph = Mapping[str, Set[str]]
AT_THE_TOP = {
    "LICENSE",
    "Makefile",
    "README.md",
    "docker-compose.yml",
    "orchestrator",
    "pyproject.toml",
    "requirements.lock",
    "shared",
    "tests",
    "worker",
}
SAYS_NOTHING = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc", "types"}


def test_the_top_level_holds_only_what_the_design_shows() -> None:
    entries = {path.name for path in ROOT.iterdir() if is_ours(path) and not path.name.startswith(".")}
    assert entries - AT_THE_TOP == set()


def test_no_module_or_folder_has_a_meaningless_name() -> None:
    paths = [Path(name(path)) for path in python_files(*PACKAGES, "tests")]
    assert [str(path) for path in paths if SAYS_NOTHING & {*path.parent.parts, path.stem}] == []


def test_every_module_opens_with_a_sentence() -> None:
    silent = []
    for path in python_files(*PACKAGES):
        text = path.read_text("utf-8").lstrip()
        if text and not text.startswith(('"""', 'r"""')):
            silent.append(name(path))
    assert silent == []


def roof(path: str) -> int:
    if path in LONGER:
        return LONGER[path][0]
    return LOW_ROOF if path in LOOP or Path(path).parent == Path("worker/tools") else FILE_ROOF


def sizes() -> Mapping[str, int]:
    return {name(path): len(path.read_text("utf-8").splitlines()) for path in python_files(*PACKAGES, "tests")}


def test_no_file_is_longer_than_its_roof() -> None:
    assert [f"{path}: {size}, at most {roof(path)}" for path, size in sizes().items() if size > roof(path)] == []


def test_a_longer_file_of_tools_needs_its_reason() -> None:
    lines = sizes()
    assert [path for path in LONGER if lines[path] <= LOW_ROOF] == [], "these reasons are not needed any more"
    assert len(LONGER) == LONGER_ROOF


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("worker/core/loop.py", 150),
        ("worker/task.py", 450),
        ("worker/tools/grep.py", 150),
        ("worker/tools/base.py", 211),
        ("worker/tools/pages.py", 305),
        ("worker/tools/builtin.py", 150),
        ("tests/worker/tools/test_grep.py", 450),
    ],
)
def test_the_roof_of_a_file(path: str, lines: int) -> None:
    assert roof(path) == lines


def test_no_function_is_longer_than_its_roof() -> None:
    too_long = []
    for path in python_files(*PACKAGES):
        most = LOOP_FUNCTION_ROOF if name(path) in LOOP else FUNCTION_ROOF
        for node in nodes(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > most:
                    too_long.append(f"{name(path)}:{node.lineno} {node.name}: {lines} lines, at most {most}")
    assert too_long == []


def imports(source: ast.Module, package: str, known: Set[str]) -> Iterator[str]:
    """The known modules that a file of the package imports, wherever: for types only, or inside a function."""
    for node in nodes(source):
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
        "import deputize.worker.core.loop",
        "from deputize.worker.core.loop import Loop",
        "from deputize.worker.core import loop",
        "from .loop import Loop",
        "from . import loop",
        "from ...worker.core.loop import Loop",
        "if TYPE_CHECKING:\n    from .loop import Loop",
        "def later():\n    from .loop import Loop",
    ],
)
def test_every_way_to_import_a_file_counts(text: str) -> None:
    known = {"deputize.worker.core", "deputize.worker.core.loop"}
    assert [*imports(ast.parse(text), "deputize.worker.core", known)] == ["deputize.worker.core.loop"]


def test_few_files_lie_loose_at_the_top_of_the_worker() -> None:
    loose = [name(path) for path in python_files("worker") if path.parent == ROOT / "worker"]
    assert "worker/attempts.py" in loose
    assert len(loose) == LOOSE_FILES, "a file that is not the run itself belongs into a package"
