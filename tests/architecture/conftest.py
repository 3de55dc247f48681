"""The syntax trees of all files are parsed once, and go when the last of these tests has ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.architecture.sources import tree


@pytest.fixture(scope="package", autouse=True)
def trees() -> Iterator[None]:
    """Otherwise the garbage collector looks through millions of nodes during all later tests of the process."""
    yield
    tree.cache_clear()
