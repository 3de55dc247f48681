"""The places that catch every exception and continue. Each has its reason here; their number must not grow."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.sources import PACKAGES, dotted, python_files, tree

REASONS = {
    "errors.py run_command": "a user cannot act on a traceback; one line says what happened and asks for a report",
    "app.py __call__": "the client gets a response with an id that finds the log line, instead of a broken connection",
    "pool.py run_calls": "a report that Celery refuses must not prevent the reports of other jobs",
    "pool.py _drive": "Celery's tracer has to receive every exception of its coroutine; SystemExit would end the loop",
    "run.py _work": "the caller gets a result in every case, also after a defect of the worker itself",
    "tool_calls.py _run": "an exception inside a tool becomes the result of that call, and the run continues",
    "adapter.py try_call": "the one call of code about which nothing is known; its callers report the exception",
}
ROOF = 8

BROAD = {"Exception", "BaseException"}


def _is_broad(caught: ast.expr | None) -> bool:
    each = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(one is None or dotted(one) in BROAD for one in each)


def _handlers(node: ast.AST) -> Iterator[ast.AST]:
    """Broad handlers that continue. Those that end with ``raise`` are cleanups or translations."""
    if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not isinstance(node.body[-1], ast.Raise):
        yield node
    if isinstance(node, ast.Call) and dotted(node.func).endswith("suppress") and any(map(_is_broad, node.args)):
        yield node


def places(module: ast.Module) -> set[str]:
    """The functions of a module that hold such a handler."""
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {function.name for function in functions for node in ast.walk(function) if any(_handlers(node))}


def test_every_broad_handler_has_its_reason() -> None:
    found = {f"{path.name} {place}" for path in python_files(*PACKAGES) for place in places(tree(path))}
    assert found == set(REASONS)


def test_there_are_never_more_of_them() -> None:
    assert len(REASONS) <= ROOF


def test_a_handler_that_goes_on_is_told_from_one_that_raises() -> None:
    handlers = {
        "goes_on": "try: x()\n    except Exception: log()",
        "goes_on_bare": "try: x()\n    except: log()",
        "goes_on_sometimes": "try: x()\n    except (OSError, BaseException):\n        if y: raise\n        log()",
        "suppresses": "with contextlib.suppress(Exception): x()",
        "cleans_up": "try: x()\n    except BaseException:\n        log()\n        raise",
        "is_narrow": "try: x()\n    except (OSError, ValueError): log()",
    }
    module = ast.parse("\n".join(f"def {name}():\n    {text}" for name, text in handlers.items()))
    assert places(module) == {"goes_on", "goes_on_bare", "goes_on_sometimes", "suppresses"}
