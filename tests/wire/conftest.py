"""Golden files: what the outside sees, word for word.

A test that fails here means that the contract changed. If that is meant, change the contract with it and write the
files anew:

    pytest tests/wire --rewrite-golden
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).with_name("golden")
OPTION = "--rewrite-golden"

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="write the golden files of tests/wire anew")


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Golden:
    """``golden(name, text)`` holds the text against the file of that name."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        # Where pytest is called without this folder, this file comes too late to add its option.
        if pytestconfig.getoption(OPTION, default=False):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        assert path.exists(), f"there is no golden/{name}; write it with `pytest tests/wire {OPTION}`"
        assert text == path.read_text("utf-8"), f"golden/{name} differs; see tests/wire/conftest.py"

    return check
