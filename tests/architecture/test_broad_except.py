"""The handlers that catch every exception and continue. Each has its reason here; their number must not grow."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.architecture.sources import PACKAGES, dotted, name, nodes, python_files, tree

REASONS = {
    "orchestrator/cli/errors.py run_command": [
        "a user cannot act on a traceback; one line says what happened and asks for a report"
    ],
    "orchestrator/app.py __call__": [
        "the client gets a response with an id that finds the log line, instead of a broken connection"
    ],
    "worker/celery_pool/pool.py run_calls": ["a report that Celery refuses must not prevent the reports of other jobs"],
    "worker/celery_pool/pool.py _drive": [
        "Celery's tracer has to receive every exception of its coroutine, also a cancellation",
        "SystemExit of a job would end the loop and with it every other job",
    ],
    "worker/core/run.py _work": ["the caller gets a result in every case, also after a defect of the worker itself"],
    "worker/core/part.py errors_reported": ["a part, also one of a user's package, must not cost the run its result"],
    "worker/core/execution.py caught": [
        "an exception inside a tool becomes the result of that call; the run continues"
    ],
    "worker/adapters/adapter.py try_call": [
        "the one call of code about which nothing is known; its callers report the exception"
    ],
}
"""By file and function: a reason for each handler."""
ROOF = 9
"""As many handlers as there are now."""

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


def places(module: ast.Module) -> Counter[str]:
    """How many such handlers each function of a module holds, and how many are in none of them (``<module>``)."""
    functions = [node for node in nodes(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    held = [(function.name, node) for function in functions for node in ast.walk(function) if any(_handlers(node))]
    inside = {node for _, node in held}
    outside = [node for node in nodes(module) if any(_handlers(node)) and node not in inside]
    return Counter([place for place, _ in held] + ["<module>"] * len(outside))


def test_every_broad_handler_has_its_reason() -> None:
    found = {
        f"{name(path)} {place}": number
        for path in python_files(*PACKAGES)
        for place, number in places(tree(path)).items()
    }
    assert found == {place: len(reasons) for place, reasons in REASONS.items()}


def test_there_are_never_more_of_them() -> None:
    assert sum(map(len, REASONS.values())) == ROOF


def test_a_handler_that_goes_on_is_distinguished_from_one_that_raises() -> None:
    handlers = {
        "goes_on": "try: x()\n    except Exception: log()",
        "goes_on_bare": "try: x()\n    except: log()",
        "goes_on_sometimes": "try: x()\n    except (OSError, BaseException):\n        if y: raise\n        log()",
        "suppresses": "with contextlib.suppress(Exception): x()",
        "cleans_up": "try: x()\n    except BaseException:\n        log()\n        raise",
        "is_narrow": "try: x()\n    except (OSError, ValueError): log()",
        "goes_on_twice": "try: x()\n    except Exception: log()\n    try: y()\n    except Exception: log()",
    }
    text = "\n".join(f"def {function}():\n    {text}" for function, text in handlers.items())
    module = ast.parse(f"{text}\ntry: import x\nexcept Exception: pass\nclass Y:\n    with suppress(Exception): z()")
    once = dict.fromkeys(("goes_on", "goes_on_bare", "goes_on_sometimes", "suppresses"), 1)
    assert places(module) == once | {"goes_on_twice": 2, "<module>": 2}
