"""A newcomer's first change: the tool of `worker/docs/own-tools.md`, added as that page and CONTRIBUTING state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.architecture.tree_copy import copy_of_the_tree, run_in, run_tests_in

ABOUT_FILES = ("tree", "imports", "words", "docs", "registries", "references", "tests", "errors", "output")
"""Those of the tests of the architecture that read files of tools, and tests and documents of them."""
TEST = '''
"""count_words: the words of a text file."""

from __future__ import annotations

from tests.runs.toolbench import Toolbench


async def test_words_are_counted(desk: Toolbench) -> None:
    desk.write("a.txt", "one two\\nthree\\n")
    assert (await desk.call("count_words", path="a.txt")).content == "3 words"
'''.lstrip()


def example() -> str:
    found = re.search(r"^```python\n(.*?)^```", (ROOT / "worker/docs/own-tools.md").read_text(), re.S | re.M)
    assert found
    return found[1]


def insert(file: Path, before: str, line: str) -> None:
    """Adds a line before the one that begins so."""
    text = file.read_text()
    assert text.count(f"\n{before}") == 1, (file, before)
    file.write_text(text.replace(f"\n{before}", f"\n{line}\n{before}"))


@pytest.mark.thorough
@pytest.mark.long
def test_the_documented_tool_passes_everything_with_a_line_two_samples_and_a_test(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path)
    (tree / "worker/tools/count_words.py").write_text(example())
    (tree / "tests/worker/tools/test_count_words.py").write_text(TEST)
    insert(tree / "worker/tools/builtin.py", "from .edit_file", "from .count_words import CountWords")
    insert(tree / "worker/tools/builtin.py", "    RewriteArtifact(),", "    CountWords(),")
    samples = tree / "tests/contracts/tool_samples.py"
    insert(samples, '    "rewrite_artifact": {"name": "plan.md"', '    "count_words": {"path": "src/app.py"},')
    insert(samples, '    "rewrite_artifact": {"name": "long.md"', '    "count_words": {"path": "long.txt"},')

    own = "tests/worker/tools/test_count_words.py", "tests/contracts/test_tools.py"
    code, output = run_tests_in(tree, *own, *(f"tests/architecture/test_{name}.py" for name in ABOUT_FILES))
    assert code == 0, output
    assert run_in(tree, "-m", "ruff", "check", "--no-cache", "worker", "tests") == (0, "All checks passed!\n")
