"""Lines that were collected to get past a classification, and what each of them is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deputize.worker.policy.shell.classify import Decision, classify_line, strictest

FOLDER = Path(__file__).parents[3] / "corpus"
ROWS: list[dict[str, Any]] = [
    json.loads(row)
    for name in ("commands.jsonl", "own_commands.jsonl")
    for row in (FOLDER / name).read_text("utf-8").splitlines()
]


@pytest.mark.requirement("S001-033", "S001-042", "S002-069")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_collected_line_has_its_class_or_a_stricter_one_where_it_is_not_plain(row: dict[str, Any]) -> None:
    line, expected = classify_line(row["command"]), Decision(row["class"])
    found = line.decision
    assert strictest([found, expected]) is found
    assert (found is not expected) == (row.get("plain", True) is False)
    assert found is expected or not line.commands


def test_the_collection_has_lines_of_every_class() -> None:
    assert {row["class"] for row in ROWS} == set(Decision)
    assert len(ROWS) > 600
