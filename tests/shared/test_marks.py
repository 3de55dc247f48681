"""The mark of a result, and the words after it."""

from __future__ import annotations

import json

import pytest

from deputize.shared.delegation import DelegationFailed
from deputize.shared.marks import MARKS
from deputize.shared.wording import outcome
from tests.marked import MARKED, Marked


@pytest.mark.parametrize("row", MARKED, ids=lambda row: f"{row.sign} {row.words}")
def test_a_mark_is_decided_by_the_result_and_leads_its_line(row: Marked) -> None:
    result = row.result
    assert (MARKS[result.mark], result.headline) == (row.sign, row.headline)
    assert outcome(result).startswith(f"{row.sign} {row.words}: 0 turns")
    assert json.loads(result.to_json())["mark"] == result.mark
    if not result.success:
        with pytest.raises(DelegationFailed, match=rf"^dlg_1 {row.headline} \({row.reason}\): "):
            result.raise_for_status()
