"""What every test gets."""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.leaks", "tests.redis_server", "tests.running", "tests.fleet"]

# How long an example takes is the machine's business. In CI the same examples are tried every time.
settings.register_profile(
    "ours", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("ours")


def pytest_configure() -> None:
    """Keeps the garbage collector away from the tests themselves: they are many, and stay to the end."""
    gc.disable()


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
