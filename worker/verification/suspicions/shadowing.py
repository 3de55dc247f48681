"""Parameters of functions in Python that have the name of a module, but are other objects."""

from __future__ import annotations

import ast
from collections.abc import Collection

from ..sources.functions_before import Function


def shadowing(node: Function, modules: Collection[str]) -> set[str]:
    """Returns the parameters with the name of a module that hold another object.

    They have no default, which may be the module, and the function binds their names nowhere else.
    """
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args]
    required = every[: len(every) - len(arguments.defaults)]
    required += [each for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if not default]
    found = {each.arg for each in required if each.arg in modules}
    for part in ast.walk(node) if found else ():
        match part:
            case ast.Name(id=name, ctx=ast.Store()):
                found.discard(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found -= {each.asname or each.name.partition(".")[0] for each in names}
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                found -= {*names}
            case _:
                pass
    return found
