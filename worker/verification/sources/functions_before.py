"""A file in Python as the run left it, but with its functions as they were before.

What a test looks at besides is the same as with the run's changes: constants, imports, classes, other files. So a test
that fails here depends on what the run's functions do. A function that is new answers with an object that is equal to
nothing, and not true unless asked for; what the file had before, and has no more, is there again.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ....shared import syntax_tree
from .broken_functions import is_head

Function = ast.FunctionDef | ast.AsyncFunctionDef
_NO_ANSWER = "return type('', (), {'__bool__': lambda self: %s})()"
_WITHOUT_ANSWER = ("__init__", "__init_subclass__", "__set_name__", "__post_init__", "__del__")


def functions_in(text: str) -> dict[str, list[Function]]:
    """Returns the functions of a file by their names with those of their classes; none where it cannot be parsed."""
    found = defaultdict[str, list[Function]](list)
    try:
        left: list[tuple[str, ast.AST]] = [("", syntax_tree.parse(text))]
    except syntax_tree.PARSE_ERRORS:
        return found
    while left:
        path, node = left.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                found[f"{path}{child.name}"].append(child)
            else:
                left.append((f"{path}{child.name}." if isinstance(child, ast.ClassDef) else path, child))
    return found


def source_of(text: str, others: Mapping[str, Collection[str]]) -> str:
    """Returns the file from which a new one was moved, if it was: it has most of the functions with the same names.

    ``others``: files as they were before, each with the names of its functions.
    """
    names = functions_in(text).keys()
    found = max(others, key=lambda other: len(names & {*others[other]}), default="")
    return found if found and names & {*others[found]} else ""


def with_functions_before(before: str, text: str, *, is_true: bool = False) -> str | None:
    """Returns the text with its functions as before; None where no function differs, or it cannot be parsed.

    ``is_true``: whether the answers of those that are new are true. Each passes tests of one kind: ``assert not f()``.
    """
    visitor = _Functions(before, is_true=is_true)
    try:
        tree = visitor.visit(syntax_tree.parse(text))
        _add_missing(tree, syntax_tree.parse(before))
        return ast.unparse(ast.fix_missing_locations(tree)) if visitor.differs else None
    except syntax_tree.PARSE_ERRORS:
        return None


class _Functions(ast.NodeTransformer):
    def __init__(self, before: str, *, is_true: bool) -> None:
        self._before, self._path, self.differs = functions_in(before), "", False
        self._is_true = is_true
        for each in self._before.values():
            each.sort(key=lambda node: node.lineno)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        around, self._path = self._path, f"{self._path}{node.name}."
        self.generic_visit(node)
        self._path = around
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: Function) -> ast.AST:
        before = self._before.get(f"{self._path}{node.name}")
        if before:  # several of one name, as the parts of a property, are in their order
            found = before.pop(0) if len(before) > 1 else before[0]
            self.differs = self.differs or ast.dump(found) != ast.dump(node)
            return found
        self.differs = True
        node.body = (
            syntax_tree.parse("pass").body if node.name in _WITHOUT_ANSWER else _returning(is_true=self._is_true)
        )
        return node


def _returning(*, is_true: bool) -> list[ast.stmt]:
    function = syntax_tree.parse(f"def f():\n    {_NO_ANSWER % is_true}").body[0]
    assert isinstance(function, ast.FunctionDef)
    return function.body


def _add_missing(tree: ast.Module, old: ast.Module) -> None:
    """Adds what the file had before and lacks now: imports at its beginning, all else at its end."""
    bound = {name for node in tree.body for name in _names(node)}
    gone = [node for node in old.body if (names := {*_names(node)}) and not names & bound]
    imports = [node for node in gone if isinstance(node, ast.Import | ast.ImportFrom)]
    first = next((at for at, node in enumerate(tree.body) if not is_head(node)), len(tree.body))
    tree.body[first:first] = imports
    tree.body += [node for node in gone if node not in imports]
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for before in old.body:
        if isinstance(before, ast.ClassDef) and before.name in classes:
            there = classes[before.name].body
            names = {name for node in there for name in _names(node)}
            there += [node for node in before.body if isinstance(node, Function) and node.name not in names]


def _names(node: Any) -> Iterator[str]:
    """Yields the names that a statement binds."""
    match node:
        case ast.Import() | ast.ImportFrom():
            yield from (each.asname or each.name.partition(".")[0] for each in node.names)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Assign():
            yield from (part.id for each in node.targets for part in ast.walk(each) if isinstance(part, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case _:
            pass
