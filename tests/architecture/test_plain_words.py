"""Plain technical English in production code (names, comments, docstrings and messages) and in documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGES, ROOT, name

UNUSUAL = re.compile(
    r"\b(?:told|nobody|whoever|shall)\b"
    r"|\b_?(?:said|telling)\b|\b_tell\b|(?<!\.)\btell\b"  # a file's ``tell()`` is Python's
    r"|(?<!there )(?<!null )\b(?:is|are) no (?!more\b|\w+er\b)"
    r"|\bsays\b|\btells\b|\bgives\b(?! up)|\bmakes way\b",
    re.IGNORECASE,
)


def unusual_words(path: Path) -> list[str]:
    return [found[0] for found in UNUSUAL.finditer(path.read_text("utf-8"))]


def test_production_code_and_documents_use_plain_words() -> None:
    kinds = ("*.py", "*.lua", "*.md")
    files = [path for package in PACKAGES for kind in kinds for path in sorted((ROOT / package).rglob(kind))]
    files += [ROOT / "README.md", *sorted((ROOT / ".github").glob("*.md")), *sorted((ROOT / "tests").rglob("*.md"))]
    assert len(files) > 100
    assert {name(path): words for path in files if (words := unusual_words(path))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "# the caller is told",
        "said = 1",
        "_tell = 2",
        "Nobody asks",
        "def tell(x): ...",
        "it is no directory",
        "they are no changes",
        "the error says why",
        "it gives one",
        "one makes way",
    ],
)
def test_an_unusual_word_is_found(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(text, "utf-8")
    assert len(unusual_words(path)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "# there is no folder",
        "it is no longer used",
        "file.tell()",
        "foretell = 1",
        "it gives up",
        "there are no files",
    ],
)
def test_ordinary_english_is_not_found(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(text, "utf-8")
    assert unusual_words(path) == []
