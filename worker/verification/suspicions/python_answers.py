"""What methods of Python answer when values are compared: the same to all, or of values that differ by little."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from ..sources.functions_before import Function

_COMPARISONS = frozenset(("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__"))
_ANSWERS = frozenset(
    ("__bool__", "__abs__", "__instancecheck__", "__subclasscheck__", "__sub__", "__rsub__", "__round__")
)
DUNDERS = _COMPARISONS | _ANSWERS
EQUALITIES = ("__eq__", "__ne__")
_NUMBERS = frozenset(("int", "float", "complex", "Decimal", "Fraction", "datetime", "timedelta"))
BUILTIN_TYPES = frozenset(("object", "int", "float", "str", "tuple", "list", "dict", "bool", "complex", "bytes"))


def last_name(node: ast.AST) -> str:
    """Returns the last part of a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def root_name(node: ast.AST) -> str:
    """Returns the first part of a dotted name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def answers_alike(node: Function) -> bool:
    """Whether a method answers without a look at what it is asked about, and does not refuse to answer."""
    body = [each for each in node.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    if any(isinstance(part, ast.Raise) for each in body for part in ast.walk(each)):
        return False
    returned = [part.value for each in body for part in ast.walk(each) if isinstance(part, ast.Return)]
    if returned and all(isinstance(each, ast.Name) and each.id == "NotImplemented" for each in returned):
        return False
    if node.name in _ANSWERS and node.name not in ("__instancecheck__", "__subclasscheck__"):
        used = {part.id for each in body for part in ast.walk(each) if isinstance(part, ast.Name)}
        is_true = all(isinstance(each, ast.Constant) and each.value is True for each in returned)
        arguments = {each.arg for each in node.args.args}
        return bool(returned) and (is_true if node.name == "__bool__" else not used & arguments)
    return uses_too_little(node.args, body)


def invents(node: Function) -> bool:
    """Whether a method that is asked for a missing name or key answers without a look at which one it is.

    One that compares it with those that it knows does look.
    """
    name = node.args.args[-1].arg if node.args.args else ""
    parts = [part for each in node.body for part in ast.walk(each)]
    knows = any(
        isinstance(part, ast.Compare)
        and any(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in part.ops)
        for part in parts
    )
    returned = [part.value for part in parts if isinstance(part, ast.Return) and part.value is not None]
    functions = {each.name: each for each in parts if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    answers = [functions.get(last_name(each), each) for each in returned]
    stores = any(
        isinstance(part, ast.Assign)
        or (
            isinstance(part, ast.Call)
            and last_name(part.func) == "setattr"
            and any(_has(each, name) for each in part.args)
        )
        for part in parts
    )
    uses = any(_has(each, name) for each in answers)
    return bool(returned) and not (knows or uses or stores or _matches(parts, name))


def _has(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def _matches(parts: Sequence[ast.AST], name: str) -> bool:
    """Whether a name is matched with those that are known, and no other one gets an answer."""
    cases = [
        each for part in parts if isinstance(part, ast.Match) and last_name(part.subject) == name for each in part.cases
    ]
    others = [each for each in cases if not any(isinstance(part, ast.MatchValue) for part in ast.walk(each.pattern))]
    answered = {id(part) for each in cases for part in ast.walk(each) if isinstance(part, ast.Return)}
    is_all = answered >= {id(part) for part in parts if isinstance(part, ast.Return)}
    is_open = any(isinstance(part, ast.Return) for each in others for part in ast.walk(each))
    return bool(cases) and is_all and not is_open


def uses_too_little(arguments: ast.arguments, body: list[ast.stmt] | list[ast.expr]) -> bool:
    """Whether an answer to a comparison does not depend on both sides."""
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    if arguments.vararg and len(names) < 2:
        names.append(arguments.vararg.arg)
    if len(names) < 2:
        return True
    parts = [part for each in body for part in ast.walk(each)]
    used = {part.id for part in parts if isinstance(part, ast.Name)}
    if names[1] not in used:
        return True
    kinds = [
        part
        for part in parts
        if isinstance(part, ast.Call) and last_name(part.func) == "isinstance" and len(part.args) == 2
    ]
    of_builtins = all(
        isinstance(each, ast.Name) and each.id in BUILTIN_TYPES
        for part in kinds
        for each in (part.args[1].elts if isinstance(part.args[1], ast.Tuple) else [part.args[1]])
    )
    of_type = any(isinstance(part, ast.Call) and last_name(part.func) == "type" for part in parts)
    if names[0] not in used and of_builtins and not of_type:
        return True
    itself = any(
        isinstance(part, ast.Compare) and ast.dump(part.left) == ast.dump(part.comparators[0]) for part in parts
    )
    always = any(
        isinstance(part, ast.BoolOp)
        and isinstance(part.op, ast.Or)
        and any(isinstance(each, ast.Constant) and each.value is True for each in part.values)
        for part in parts
    )
    return itself or always


def is_tolerant(body: Sequence[ast.AST]) -> bool:
    """Whether an equality holds of numbers that differ by little."""
    parts = [part for each in body for part in ast.walk(each)]
    called = {last_name(part.func) for part in parts if isinstance(part, ast.Call)}
    named = {
        target.id
        for part in parts
        if isinstance(part, ast.Assign) and _is_difference(part.value, ())
        for target in part.targets
        if isinstance(target, ast.Name)
    }
    bounded = (
        side
        for part in parts
        if isinstance(part, ast.Compare) and any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in part.ops)
        for side in (part.left, *part.comparators)
    )
    return bool(called & {"isclose", "round", "allclose"}) or any(_is_difference(side, named) for side in bounded)


def _is_difference(node: ast.expr, named: Collection[str]) -> bool:
    return any(
        (isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub))
        or (isinstance(part, ast.Call) and last_name(part.func) == "abs")
        or (isinstance(part, ast.Name) and part.id in named)
        for part in ast.walk(node)
    )


def is_number(node: ast.ClassDef) -> bool:
    """Whether a class is one of numbers or times, which otherwise are equal only if they are the same."""
    return any(last_name(base) in _NUMBERS for base in node.bases)
