"""What every test gets."""

import gc
import importlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.leaks", "tests.redis_server", "tests.running", "tests.fleet"]

# How long an example takes is the machine's business. In CI the same examples are tried every time.
settings.register_profile(
    "ours", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("ours")


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the garbage collector away from the tests themselves: they are many, and stay to the end.

    Of several processes that import all tests each begins with others: what one has compiled, the others find.
    """
    gc.disable()
    own: dict[str, Any] = getattr(config, "workerinput", {})
    if own and config.args == config.getini("testpaths"):
        modules = sorted(Path(__file__).parent.rglob("test_*.py"))
        first = int(own["workerid"].removeprefix("gw")) * len(modules) // own["workercount"]
        for module in (*modules[first:], *modules[:first]):
            importlib.import_module(".".join(module.relative_to(config.rootpath).with_suffix("").parts))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the longest tests first, one per process: begun last, one of them alone would keep the others waiting."""
    long = [item for item in items if item.get_closest_marker("long")]
    rest = [item for item in items if not item.get_closest_marker("long")]
    processes = int(getattr(config, "workerinput", {}).get("workercount", 1))
    for number, item in enumerate(long):
        rest.insert(number % processes * -(-len(items) // processes), item)
    items[:] = rest
