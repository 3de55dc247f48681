"""What every test gets."""

pytest_plugins = ["tests.redis_server", "tests.leaks", "tests.running", "tests.fleet"]
