"""The project's own files, as text and as syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("shared", "orchestrator", "worker")


@cache
def _ignored() -> tuple[str, ...]:
    lines = (ROOT / ".gitignore").read_text("utf-8").split()
    return (".git", *(line.strip("/") for line in lines))


def is_ours(path: Path) -> bool:
    """False for what git ignores."""
    parts = path.relative_to(ROOT).parts
    return not any(fnmatch(part, pattern) for part in parts for pattern in _ignored())


@cache
def files() -> tuple[Path, ...]:
    """Every file of the project that git does not ignore."""
    return tuple(_walk(ROOT))


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if not is_ours(path):
            continue
        if path.is_symlink():
            continue  # .package shows our folders a second time
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


def texts() -> dict[str, str]:
    """Every file of the project that is text, by its name."""
    found: dict[str, str] = {}
    for path in files():
        try:
            found[name(path)] = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
    return found


def python_files(*tops: str) -> list[Path]:
    """The Python files below folders of the top level."""
    assert all((ROOT / top).is_dir() for top in tops), "a check of no files would always pass"
    return [path for path in files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in tops]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


@cache
def nodes(top: ast.AST) -> tuple[ast.AST, ...]:
    """What ``ast.walk`` yields. To walk through all files takes a second, and many tests do."""
    return tuple(ast.walk(top))


def dotted(node: ast.AST) -> str:
    """``a.b.c`` for an attribute chain, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def module_of(path: Path) -> str:
    """The dotted name under which the file is imported."""
    parts = ("deputize", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_from(node: ast.ImportFrom, package: str) -> str:
    """The absolute name of the module that an import in a module of the package names."""
    if not node.level:
        return node.module or ""
    above = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*above, *filter(None, [node.module])])
