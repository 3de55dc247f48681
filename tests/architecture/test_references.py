"""Production code and documents give the reason itself: no requirement id, no document outside the repository."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.architecture.sources import PACKAGES, name, texts
from tests.requirements import conflicts, requirements

SECTION = r"§|\b(?:contract|design|review)-?\d?\.md\b"
"""A section of some document, or one of the documents that were written before the code."""
OF_TESTS = "tests/"


@cache
def _reference() -> re.Pattern[str]:
    ids = "|".join(map(re.escape, sorted({*requirements(), *conflicts()})))
    return re.compile(rf"(?<![\w-])(?:{ids})(?![\w-])|{SECTION}")


def references(text: str) -> list[str]:
    return [match.group() for match in _reference().finditer(text)]


def _texts() -> dict[str, str]:
    """Everything but the tests, their data and binary files."""
    return {
        path: text
        for path, text in texts().items()
        if not path.startswith(OF_TESTS) and Path(path).name != "requirements.lock"
    }


def test_no_file_but_a_test_cites_a_requirement_or_a_document_elsewhere() -> None:
    ours = _texts()
    assert {Path(path).parts[0] for path in ours} >= set(PACKAGES)
    assert {path: found for path, text in ours.items() if (found := references(text))} == {}


def test_a_reference_is_distinguished_from_a_number_or_a_code() -> None:
    assert references("one (S000-003, C01), P-20: see design §3 and contract.md") == [
        "S000-003", "C01", "P-20", "§", "contract.md",
    ]  # fmt: skip
    assert references("0.001 s, SHA-1, UTF-8, noqa: S108, XP-20, ISC-01, the contract of a tool") == []


def test_no_test_cites_a_document_outside_the_repository() -> None:
    """Ids stand on tests, because ``tests/requirements`` defines them; nothing defines what a section was."""
    cited = re.compile(r"\b(?:contract|design) §")
    here = name(Path(__file__))
    assert [
        path for path, text in texts().items() if path.endswith(".py") and path != here and cited.search(text)
    ] == []
