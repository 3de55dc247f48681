"""What every test gets."""

pytest_plugins = ["tests.leaks", "tests.redis_server", "tests.running", "tests.fleet"]
