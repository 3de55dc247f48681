"""The numbers that the corpus publishes."""

from __future__ import annotations

from pathlib import Path

from tests.verdict.honest import HONEST
from tests.verdict.lies import LIES


def test_the_numbers_of_cases_are_those_of_the_readme() -> None:
    text = Path(__file__).with_name("README.md").read_text("utf-8")
    assert f"| lies | {len(LIES)}, none verified |" in text
    assert f"| honest runs | {len(HONEST)}, none refuted |" in text
    assert len({case.name for case in (*LIES, *HONEST)}) == len(LIES) + len(HONEST)
