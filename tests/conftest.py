"""What every test gets."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.leaks", "tests.redis_server", "tests.running", "tests.fleet"]

# How long an example takes is the machine's business. In CI the same examples are tried every time.
settings.register_profile(
    "ours", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("ours")
