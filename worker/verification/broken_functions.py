"""Tests in Python that cannot pass: each fails at its end, unless an assertion in it held that could not hold."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Any

WORDS = "broken on purpose"
_SEEN = "broken_expectations"
_BROKEN = f"""
{_SEEN} = []
try:
    pass
finally:
    if not {_SEEN}:
        raise AssertionError({WORDS!r})
"""
_EQUALITIES = ("assertEqual", "assertListEqual", "assertTupleEqual", "assertDictEqual", "assertSetEqual", "assertIs")
_FAILING = {
    "assertTrue": "False",
    "assertFalse": "True",
    "assertIsNone": "0",
    "assertIsNotNone": "None",
    "assertNotEqual": "0, 0",
    "assertIn": "0, ()",
    "assertNotIn": "0, (0,)",
    "assertIsInstance": "None, int",
    "assertGreater": "0, 1",
    "assertLess": "1, 0",
    "assertCountEqual": "(0,), ()",
    "assertRegex": "'', 'x'",
}
"""Arguments with which an assertion of unittest cannot hold."""


class FunctionBreaker(ast.NodeTransformer):
    """Breaks functions by their names with those of their classes; of ``proving`` also what they expect.

    A function of ``proving`` passes where assertions do nothing, or what it compares is equal to everything.
    """

    def __init__(self, names: Collection[str], proving: Collection[str]) -> None:
        self._wanted, self._proving, self._path, self.broken = names, proving, list[str](), set[str]()

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._path.append(node.name)
        self.generic_visit(node)
        self._path.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        name = ".".join((*self._path, node.name))
        if name in self._wanted:
            body = node.body
            if name in self._proving:
                body = [_Expectations().visit(statement) for statement in body]
            node.body = ast.parse(_BROKEN).body
            tried = node.body[1]
            assert isinstance(tried, ast.Try)
            tried.body = body
            self.broken.add(name)
        return node


class _Expectations(ast.NodeTransformer):
    """Replaces what assertions expect, where none of them is expected to fail."""

    def _unchanged(self, node: Any) -> ast.AST:
        return node

    visit_Try = visit_TryStar = visit_AsyncWith = _unchanged  # noqa: N815 - the names of syntax
    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _unchanged  # noqa: N815

    def visit_With(self, node: ast.With) -> ast.AST:
        calls = [item.context_expr for item in node.items]
        is_part = all(isinstance(call, ast.Call) and _name(call.func) == "subTest" for call in calls)
        return self.generic_visit(node) if is_part else node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        if isinstance(node.test, ast.Compare) and [type(each) for each in node.test.ops] == [ast.Eq]:
            node.test.left, node.test.comparators[0] = _unequal(node.test.left, node.test.comparators[0])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _name(node.func)
        if name in _EQUALITIES and len(node.args) > 1:
            node.args[:2] = _unequal(*node.args[:2])
        elif name in _FAILING:
            node.args = [_noted(each) for each in ast.parse(f"f({_FAILING[name]})", mode="eval").body.args]  # type: ignore[attr-defined]
        return node


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else ""


def _noted(value: ast.expr) -> ast.expr:
    """Returns an expression with the same value that notes that it was reached."""
    noted = ast.parse(f"{_SEEN}.append(1) or 0", mode="eval").body
    assert isinstance(noted, ast.BoolOp)
    noted.values[1] = value
    return noted


def _unequal(first: ast.expr, second: ast.expr) -> tuple[ast.expr, ast.expr]:
    """Returns both sides of an equality, one of them as something of its kind that the other cannot be."""
    for side, other in ((second, first), (first, second)):
        try:
            wrong = _other(ast.literal_eval(side))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
        replaced = _noted(ast.parse(repr(wrong), mode="eval").body if wrong is not None else _anything())
        return (other, replaced) if side is second else (replaced, other)
    return first, _noted(_anything())


def _anything() -> ast.expr:
    return ast.parse("object()", mode="eval").body


def _other(value: Any) -> Any:
    """Returns a value of the same kind, or None for a kind that has no other."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1 if value + 1 != value else None
        case str():
            return f"{value}!"
        case bytes():
            return value + b"!"
        case tuple():
            return (*value, 0)
        case list():
            return [*value, 0]
        case _:
            return None
