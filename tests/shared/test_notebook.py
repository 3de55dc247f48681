"""What a notebook shows of a result."""

from __future__ import annotations

from typing import Any

import pytest

from deputize.shared.delegation import Delegation, Status, TerminationReason, ToolAgentResult
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.wire import now

ID = "dlg_01"


def result(reason: TerminationReason = TerminationReason.COMPLETED, **fields: Any) -> ToolAgentResult:
    status = Status.SUCCEEDED if reason is TerminationReason.COMPLETED else Status.FAILED
    given = {"delegation_id": ID, "status": status, "termination_reason": reason, **fields}
    return ToolAgentResult.model_validate(given)


def test_a_result_and_its_delegation_are_one_line() -> None:
    changes = [{"path": "a.py", "change": "modified"}, {"path": "b.py", "change": "created"}]
    done = result(summary="I changed\none line.\n" + "x" * 500, file_changes=changes)
    shown = f"<ToolAgentResult {ID} succeeded (completed), 2 files changed: 'I changed one line. x"
    assert repr(done).startswith(shown)
    assert (str(done), len(repr(done)) < 200, "\n" in repr(done)) == (repr(done), True, False)
    assert repr(result()) == f"<ToolAgentResult {ID} succeeded (completed): ''>"
    asked = {"id": ID, "created_at": now(), "request": DelegationRequest(task="count"), "effective_limits": Limits()}
    assert repr(Delegation(**asked, status=Status.QUEUED)) == f"<Delegation {ID} queued: 'count'>"
    ended = Delegation(**asked, status=Status.SUCCEEDED, result=done)
    assert repr(ended) == str(ended) == f"<Delegation {ID} succeeded (completed): 'count'>"


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (result(), ""),
        (result(TerminationReason.ERROR, errors=["first", "the model is gone"]), "the model is gone"),
        (result(TerminationReason.MAX_TURNS), ""),
        (result(verification={"verdict": "passed", "require": "passed", "why": "no test failed before"}), "no test"),
    ],
)
def test_a_cell_shows_how_it_ended_and_why(shown: ToolAgentResult, why: str) -> None:
    html = shown._repr_html_()
    assert html.count("<div>") == html.count("</div>")
    assert f"{shown.headline} ({shown.termination_reason}" in html
    assert why in html
    assert "<table>" not in html


def test_a_cell_shows_the_changed_files_and_no_markup_of_the_agent() -> None:
    evil = "<script>alert(1)</script>"
    changes = [
        {"path": "new.py", "change": "renamed", "from": "old.py", "addedLines": 12, "removedLines": 3},
        {"path": evil, "change": "deleted", "removedLines": 7},
        *({"path": f"{number}.py", "change": "created"} for number in range(50)),
    ]
    done = result(summary=evil, file_changes=changes, verification={"verdict": "verified", "why": evil})
    html = done._repr_html_()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 3
    assert "old.py → new.py" in html
    assert all(each in html for each in (">+12<", ">&minus;3<", ">&minus;7<", "and 2 more files"))
    assert "more file" not in result(file_changes=changes[:2])._repr_html_()
