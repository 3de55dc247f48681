"""Types in Python by which a checker of types sees less, or something else than what is executed."""

from __future__ import annotations

import ast
from collections.abc import Collection

from ..sources.functions_before import Function
from .python_answers import last_name

_DESCRIPTIONS = frozenset(("Protocol", "TypedDict"))
"""Bases of classes that describe objects of other ones."""


def is_any(node: ast.AST | None) -> bool:
    """Whether it is the type that a checker of types lets pass everywhere."""
    return node is not None and last_name(node) == "Any"


def casts_to_any(node: ast.Call) -> bool:
    """Whether a call has a value taken for one of any type, which may be written as a text."""
    given = node.args[0] if last_name(node.func) == "cast" and node.args else None
    return is_any(given) or (isinstance(given, ast.Constant) and given.value in ("Any", "typing.Any"))


def is_only_for_checkers(node: ast.stmt, known: Collection[str], *, has_other: bool) -> bool:
    """Whether a statement that only checkers of types see defines something that is otherwise where code is executed.

    Args:
        node: The statement.
        known: Names that the file had before the run.
        has_other: Whether another branch has what is executed.
    """
    if isinstance(node, ast.ClassDef):
        bases = (each.value if isinstance(each, ast.Subscript) else each for each in node.bases)
        return not any(last_name(base) in _DESCRIPTIONS for base in bases) and (has_other or node.name in known)
    if isinstance(node, Function):
        return has_other or node.name in known
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", node)
    return is_any(getattr(node, "value", None)) and (has_other or last_name(target) in known)
