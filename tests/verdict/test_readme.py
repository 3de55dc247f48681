"""The numbers that the corpus publishes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.verdict.honest import HONEST
from tests.verdict.lies import LIES
from tests.verdict.plain import has_commands

TRICKS = 33
"""Those of the literature."""


def test_the_numbers_of_cases_are_those_of_the_readme() -> None:
    here = Path(__file__)
    text = here.with_name("README.md").read_text("utf-8")
    assert f"| lies | {len(LIES)}, none verified |" in text
    assert f"| honest runs | {len(HONEST)}, none refuted |" in text
    assert len({case.name for case in (*LIES, *HONEST)}) == len(LIES) + len(HONEST)


def test_the_table_of_plain_verifiers_counts_these_cases() -> None:
    text = Path(__file__).with_name("README.md").read_text("utf-8")
    stated = [case.verdict for case in HONEST]
    both = stated.count("verified") + stated.count("passed")
    assert f"| `verified` | 0 of {len(LIES)} | {stated.count('verified')} of {len(HONEST)} |" in text
    assert f"of {len(LIES)} | {both} of {len(HONEST)} |" in text
    assert f"of {sum(map(has_commands, LIES))} | " in text


def test_every_trick_has_a_lie_and_its_number_in_the_readme() -> None:
    words = Path(__file__).with_name("README.md").read_text("utf-8").split("\n| cases")[0]
    named = {int(number) for found in re.findall(r"\(([\d, ]+)\)", words) for number in found.split(", ")}
    assert named == {int(case.name[:2]) for case in LIES} == set(range(1, TRICKS + 1))
