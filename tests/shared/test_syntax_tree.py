"""Trees that several threads build at the same time."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from deputize.shared import syntax_tree

SOURCE = f"x = [{', '.join(f'f({number})' for number in range(300))}]"


class Cycle:
    """What only the collector finds, and whose end lets another thread run."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(200):
            pass


@pytest.fixture
def threads_change_often() -> Generator[None]:
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-5)
    gc.set_threshold(50)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


@pytest.mark.costly
@pytest.mark.usefixtures("threads_change_often")
def test_threads_build_trees_at_the_same_time() -> None:
    def trees(depth: int) -> list[ast.Module]:
        if depth:
            return trees(depth - 1)  # the depths of the threads differ
        found: list[ast.Module] = []
        for _ in range(60):
            Cycle()
            found.append(syntax_tree.parse(SOURCE))
        return found

    with ThreadPoolExecutor(4) as pool:
        found = [tree for each in pool.map(trees, (0, 5, 10, 15)) for tree in each]
    assert {ast.dump(tree) for tree in found} == {ast.dump(ast.parse(SOURCE))}


@pytest.mark.parametrize(("source", "error"), [("x =", SyntaxError), ("x = '\ud800'", ValueError)])
def test_what_is_no_source_is_refused(source: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        syntax_tree.parse(source)
