"""A small project, one of whose two tests fails until ``FIX``."""

from __future__ import annotations

from pathlib import Path

from tests.runs.bench import call

PROJECT = {
    "price.py": "def total(count, each):\n    return count + each\n",
    "tests/__init__.py": "",
    "tests/test_price.py": """\
import unittest, price

class Price(unittest.TestCase):
    def test_some(self): self.assertEqual(price.total(3, 5), 15)
    def test_none(self): self.assertEqual(price.total(0, 0), 0)
""",
}
FIX = call("write_file", path="price.py", content="def total(count, each):\n    return count * each\n")


def project(folder: Path) -> str:
    for path, text in PROJECT.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return str(folder)
