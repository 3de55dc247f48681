"""The places that catch whatever comes and go on. Each has its reason here, and their number only comes down."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.sources import PACKAGES, dotted, python_files, tree

REASONS = {
    "program.py _attempt": "nothing but the end of the worker may end its standby, not even an import that fails",
    "tokens.py _tokens": "the tokenizer's panics derive from BaseException and cannot be imported",
    "errors.py reported": "a traceback tells a user neither what happened nor what to do",
    "app.py __call__": "an answer with an id that finds the log line, instead of a broken connection",
    "pool.py hear": "one job whose end Celery cannot take must not cost the others theirs",
    "pool.py _serve": "kept for the main thread, which stops the worker because of it",
    "job.py _drive": "the greenlet of Celery's tracer gets what its coroutine raised; a SystemExit, too",
    "task.py _warm_up": "what cannot be opened is said by the run that needs it",
    "run.py _work": "whatever it is, the caller gets a result that says so",
    "loop.py execute": "a tool that fails inside is an answer to its call, and the run goes on",
    "tool_define.py execute_tool": "somebody else's tool: its failure is its caller's answer",
    "layers.py initialize_base_tools": "a function of the caller's own: it costs only the tools it would give",
    "connection.py _hold": "the task of one connection; what ended it is said to whoever waits for it",
    "validation.py main": "whatever a schema leads the library into is the schema's fault",
    "reader.py main": "whatever a page leads a library into is the page's fault",
}
ROOF = 15
"""Ten is the aim."""

BROAD = {"Exception", "BaseException"}


def _is_broad(caught: ast.expr | None) -> bool:
    each = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(one is None or dotted(one) in BROAD for one in each)


def _handlers(node: ast.AST) -> Iterator[ast.AST]:
    """Handlers that end with an exception go on to somebody who knows better; they are cleanups or translations."""
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
