"""Tests in Python in a shape in which each can be made to fail, without a word in them that shows it.

A control and a canary are written in the same way: what an assertion expects passes through a function, and at the end
of the test another call decides whether it fails. Which calls give a wrong value depends on numbers. Names, numbers and
messages are random, so that code which looks into the files of tests finds the same in both.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from secrets import choice, randbelow, token_hex
from string import ascii_lowercase
from typing import Any

from ....shared import syntax_tree

_HELPER = """
def {value}(given, number, seen, wrong=None):
    if number % {divisor} != {rest}:
        return given
    seen.append(number)
    if wrong is not None:
        return wrong(given)
    if type(given) is bool:
        return not given
    if type(given) in (int, float) and given + 1 != given:
        return given + 1
    extra = {{str: "!", bytes: b"!", tuple: (0,), list: [0]}}.get(type(given))
    return object() if extra is None else given + extra
"""
_BROKEN = """
{seen} = []
try:
    pass
finally:
    if {value}(False, 0, [], lambda _: not {seen}):
        raise AssertionError({message!r})
"""
_OTHER_CLASS = "lambda _: type('Other', (Warning,), {})"
_NAN, _OBJECT = "lambda _: float('nan')", "lambda _: object()"
_ARRAY = "lambda _: [0.5, float('nan'), -7.25]"
_EQUALITIES = (
    *("assertEqual", "assertListEqual", "assertTupleEqual", "assertDictEqual", "assertSetEqual"),
    *("assertMultiLineEqual", "assertSequenceEqual"),
)
_PAIR_OF_ZEROS = {0: "lambda _: 0", 1: "lambda _: 0"}
_WRONG: Mapping[str, Mapping[int, str]] = {
    name: wrong
    for names, wrong in (
        ("assertIs", {1: _OBJECT}),
        ("assertIsNot assertNotEqual assertNotAlmostEqual", _PAIR_OF_ZEROS),
        ("assertTrue", {0: "lambda _: False"}),
        ("assertFalse", {0: "lambda _: True"}),
        ("assertIsNone", {0: "lambda _: 0"}),
        ("assertIsNotNone", {0: "lambda _: None"}),
        ("assertIn", {0: _OBJECT}),
        ("assertNotIn", {0: "lambda _: 0", 1: "lambda _: (0,)"}),
        ("assertIsInstance", {1: _OTHER_CLASS}),
        ("assertGreater assertGreaterEqual assertLess assertLessEqual assertAlmostEqual", {1: _NAN}),
        ("assertCountEqual", {0: "lambda _: (0,)", 1: "lambda _: ()"}),
        ("assertRegex", {1: "lambda _: '(?!)'"}),
        ("raises warns assertRaises assertRaisesRegex assertWarns assertWarnsRegex", {0: _OTHER_CLASS}),
        ("assert_allclose assert_almost_equal assert_array_equal assert_array_almost_equal", {1: _ARRAY}),
        ("assert_frame_equal assert_series_equal assert_index_equal", {1: _OBJECT}),
        ("assert_has_calls", {0: "lambda _: [object()]"}),
    )
    for name in names.split()
}
"""By the name of an assertion: its arguments with which it cannot hold. A comparison with NaN is false, but of objects
that answer alike whatever they are compared with."""
_OF_MOCKS = (
    *("assert_called_with", "assert_called_once_with", "assert_any_call", "assert_called", "assert_called_once"),
    *("assert_awaited_with", "assert_awaited_once_with", "assert_any_await", "assert_not_called"),
)
"""They cannot hold with one more argument."""
_CONTEXTS = ("raises", "warns", "assertRaises", "assertRaisesRegex", "assertWarns", "assertWarnsRegex")


def _name() -> str:
    return choice(ascii_lowercase) + token_hex(6)


@dataclass(frozen=True, slots=True)
class Shape:
    """The random names and numbers of one file. ``breaks``: whether its calls give wrong values."""

    breaks: bool
    value: str = field(default_factory=_name)
    seen: str = field(default_factory=_name)
    divisor: int = field(default_factory=lambda: 1_000 + randbelow(9_000))
    rest: int = field(default_factory=lambda: 100 + randbelow(900))

    def number(self) -> int:
        """Returns a number with which a value is wrong if the tests are to be broken."""
        rest = self.rest if self.breaks else (self.rest + 1 + randbelow(self.divisor - 1)) % self.divisor
        return randbelow(10**9) * self.divisor + rest

    def helper(self) -> str:
        return _HELPER.format(value=self.value, divisor=self.divisor, rest=self.rest)

    def passed(self, given: ast.expr, wrong: str = "") -> ast.expr:
        """Returns an expression with the value of this one, or another value that notes that it was reached."""
        text = f"{self.value}(0, {self.number()}, {self.seen}{f', {wrong}' if wrong else ''})"
        (statement,) = syntax_tree.parse(text).body
        assert isinstance(statement, ast.Expr)
        assert isinstance(statement.value, ast.Call)
        statement.value.args[0] = given
        return statement.value


class FunctionBreaker(ast.NodeTransformer):
    """Rewrites functions by their names with those of their classes; of ``proving`` also what they expect.

    Where the shape breaks, a function fails at its end, and one of ``proving`` passes only if an assertion held that
    cannot hold.
    """

    def __init__(self, names: Collection[str], proving: Collection[str], shape: Shape) -> None:
        self._wanted, self._proving, self._shape = names, proving, shape
        self._path, self.broken = list[str](), set[str]()

    def visit_Module(self, node: ast.Module) -> ast.AST:
        self.generic_visit(node)
        first = next((at for at, each in enumerate(node.body) if not is_head(each)), len(node.body))
        if self.broken:
            node.body[first:first] = syntax_tree.parse(self._shape.helper()).body
        return node

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
        name, shape = ".".join((*self._path, node.name)), self._shape
        if name in self._wanted:
            body = node.body
            if name in self._proving:
                body = [_Expectations(shape).visit(statement) for statement in body]
            text = _BROKEN.format(value=shape.value, seen=shape.seen, message=token_hex(8))
            node.body = syntax_tree.parse(text.replace("(False, 0,", f"(False, {shape.number()},")).body
            tried = node.body[1]
            assert isinstance(tried, ast.Try)
            tried.body = body
            self.broken.add(name)
        return node


def is_head(node: ast.stmt) -> bool:
    """Whether a statement has to stay at the beginning of a module: its docstring, and imports of the future."""
    return (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) or (
        isinstance(node, ast.ImportFrom) and node.module == "__future__"
    )


class _Expectations(ast.NodeTransformer):
    """Rewrites what assertions expect, where none of them is expected to fail."""

    def __init__(self, shape: Shape) -> None:
        self._passed: Callable[..., ast.expr] = shape.passed

    def _unchanged(self, node: Any) -> ast.AST:
        return node

    visit_Try = visit_TryStar = visit_AsyncWith = _unchanged  # noqa: N815 - the names of syntax
    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _unchanged  # noqa: N815

    def visit_With(self, node: ast.With) -> ast.AST:
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        names = {called(call) for call in calls}
        if len(calls) == len(node.items) == 1 and names <= {*_CONTEXTS}:
            self.visit_Call(calls[0])
        return self.generic_visit(node) if names == {"subTest"} and len(calls) == len(node.items) else node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        test = node.test
        if _is_any(test):
            return node
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            node.test = self._passed(test, "lambda _: False")
            return node
        match test.ops[0]:
            case ast.Eq():
                test.left, test.comparators[0] = self._unequal(test.left, test.comparators[0])
            case ast.Is():
                test.comparators[0] = self._passed(test.comparators[0], _OBJECT)
            case ast.In():
                test.left = self._passed(test.left, _OBJECT)
            case ast.Lt() | ast.Gt() | ast.LtE() | ast.GtE():
                test.comparators[0] = self._passed(test.comparators[0], _NAN)
            case _:
                node.test = self._passed(test, "lambda _: False")
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = called(node)
        if _is_any(node) or any(isinstance(each, ast.Starred) for each in node.args):
            return node
        if name in _EQUALITIES and len(node.args) > 1:
            node.args[:2] = self._unequal(*node.args[:2])
        elif name in _OF_MOCKS:
            given = ast.Tuple(node.args, ast.Load())
            node.args = [ast.Starred(self._passed(given, "lambda given: (*given, object())"), ast.Load())]
        elif name in _WRONG and len(node.args) > max(_WRONG[name]):
            for at, wrong in _WRONG[name].items():
                node.args[at] = self._passed(node.args[at], wrong)
        return node

    def _unequal(self, first: ast.expr, second: ast.expr) -> tuple[ast.expr, ast.expr]:
        """Returns both sides of an equality, one of them as what may be something that the other cannot be."""
        for side in (second, first):
            if isinstance(side, ast.Call) and called(side) == "approx" and side.args:
                side.args[0] = self._passed(side.args[0], _NAN)
                return first, second
        if is_literal(first) and not is_literal(second):
            return self._passed(first), second
        return first, self._passed(second)


def called(node: ast.expr) -> str:
    """Returns the last part of the name of what is called."""
    function = node.func if isinstance(node, ast.Call) else node
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _is_any(node: ast.AST) -> bool:
    """Whether something in it is meant to be equal to everything."""
    return any(isinstance(each, ast.Name | ast.Attribute) and called(each) == "ANY" for each in ast.walk(node))


def is_literal(node: ast.expr) -> bool:
    """Whether an expression has only literals."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
