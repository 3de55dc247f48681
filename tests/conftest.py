"""What every test gets."""

import gc
import importlib
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [
    *("tests.processes.leaks", "tests.processes.redis_server", "tests.processes.replication"),
    *("tests.runs.bench", "tests.runs.fleet"),
]

# How long an example takes is the machine's business. In CI the same examples are tried every time.
settings.register_profile(
    "ours",
    deadline=None,
    max_examples=100 if os.environ.get("CI") else 50,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
    # In a read-only checkout its examples cannot be kept, and its warning of that would be an error.
    **({} if os.access(Path(__file__).parent, os.W_OK) else {"database": None}),
)
settings.load_profile("ours")

SHARING = (
    *("tests/fundamentals/", "tests/attacks/", "tests/orchestrator/web/", "tests/verdict/test_"),
    *("tests/architecture/", "tests/system/test_compose.py"),
)
"""Tests that share what takes seconds: a stack, workers, a browser, the syntax trees of all files."""
UNTRACED = ("system", "hypothesis", "growth")
"""Marks of tests that `make coverage` runs without tracing them: what the former are about happens in other processes,
and the latter would take twice as long to reach the same lines many times over."""


@pytest.fixture(scope="session")
def is_thorough(request: pytest.FixtureRequest) -> bool:
    """Whether all of a long table is tried, or a larger sample; ``make test`` tries a small one, which differs."""
    return "not thorough" not in request.config.option.markexpr


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the garbage collector away from the tests themselves: they are many, and stay to the end.

    Of several processes that import all tests each begins with others: what one has compiled, the others find.
    """
    gc.disable()
    own: dict[str, Any] = getattr(config, "workerinput", {})
    is_traced = config.pluginmanager.hasplugin("_cov")  # begins later: what is imported before it would count as missed
    if own and config.args == config.getini("testpaths") and not is_traced:
        modules = sorted(Path(__file__).parent.rglob("test_*.py"))
        first = int(own["workerid"].removeprefix("gw")) * len(modules) // own["workercount"]
        for module in (*modules[first:], *modules[:first]):
            importlib.import_module(".".join(module.relative_to(config.rootpath).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Takes the tracer of coverage away from this thread while a test of ``UNTRACED`` runs.

    Not by pytest-cov's ``no_cover``: threads that stay would not be traced any more afterwards.
    """
    tracer = sys.gettrace()
    if tracer is None or not any(item.get_closest_marker(mark) for mark in UNTRACED):
        return (yield)
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts first what is best begun first, each at the begin of another process's part.

    These are the longest tests: begun last, one of them alone would keep the others waiting. And the folders whose
    tests share a program that takes seconds to start: scattered, they would start it in every process.
    """
    first: dict[str, list[pytest.Item]] = {}
    rest: list[pytest.Item] = []
    for item in items:
        folder = next((each for each in SHARING if item.nodeid.startswith(each)), None)
        is_long = item.get_closest_marker("long") is not None
        (first.setdefault(folder or item.nodeid, []) if folder or is_long else rest).append(item)
    processes = int(getattr(config, "workerinput", {}).get("workercount", 1))
    parts: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for number, group in enumerate(first.values()):
        parts[number % processes] += group
    for part in parts:
        wanted = max(0, len(items) // processes - len(part))
        part += rest[:wanted]
        del rest[:wanted]
    items[:] = [*(item for part in parts for item in part), *rest]
