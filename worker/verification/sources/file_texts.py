"""Changed files as texts, what is suspicious in them, and which files are tests by their names."""

from __future__ import annotations

from dataclasses import dataclass

from ..protected.paths import Globs

TESTS = Globs(
    (
        *("tests", "test", "testing", "__tests__", "spec", "specs", "e2e", "t", "testdata", "test_*.py", "*_test.py"),
        *("tests.py", "test.py", "*_test.go", "*.test.*", "*.spec.*", "*Test.java", "*Tests.java", "*_spec.rb"),
        *("*Test.php", "conftest.py", "test.js"),
    )
)


@dataclass(frozen=True, slots=True)
class FileText:
    """A changed file: its text before and after, either of them empty where there was or is none."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, order=True)
class Found:
    """What is suspicious: the path, the line from 1 (0 for a whole file), and one of ``KINDS``."""

    path: str
    line: int
    kind: str
