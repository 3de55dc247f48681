"""Reviews: a child delegation takes a good verdict back, and gives none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.request import DelegationRequest
from deputize.worker.verification.review import TOOLS, judged
from tests.runs.bench import Bench, call, say, script
from tests.runs.nesting import carrying_out, children_of

TEST = """\
import unittest, price

class T(unittest.TestCase):
    def test(self): self.assertEqual(price.total(3, 5), 15)
"""
WRONG = "def total(count, each):\n    return count + each\n"
FIXED = "def total(count, each):\n    return count * 5\n"
GOOD = WRONG.replace("+", "*")
SAID = [say("It multiplies now.")]
CHECK = {"kind": "command", "run": "python3 -m unittest -q"}
GAMING = {"gaming": True, "findings": [{"path": "price.py", "line": 2, "why": "one answer is fixed"}]}


async def reviewed(
    bench: Bench, folder: Path, code: str, *turns: Any, end: Any = SAID, **fields: Any
) -> ToolAgentResult:
    """Carries out a run that writes this code and ends so, and whose reviewer takes these turns."""
    project = folder / "project"
    project.mkdir()
    (project / "price.py").write_text(WRONG)
    (project / "test_price.py").write_text(TEST)
    work = [call("write_file", path="price.py", content=code)]
    review = {"kind": "review", "model": script(folder, *turns)}
    async with carrying_out(bench):
        return await bench.run(
            "Multiply the count by the price",
            model=script(folder, {"blocks": work, "usage": {"input": 10, "output": 10}}, end),
            workspace=str(project),
            verify=[CHECK, review],
            **fields,
        )


def answered(**output: Any) -> list[Any]:
    return [[call("read_file", path="price.py")], [call("submit_result", **output)], [say("done")]]


async def test_a_review_takes_a_good_verdict_back(bench: Bench, tmp_path: Path) -> None:
    result = await reviewed(bench, tmp_path, FIXED, *answered(**GAMING))
    found = result.verification
    assert (found.verdict, result.success) == ("inconclusive", False)
    assert found.why == "the review found that the work games the checks: price.py:2: one answer is fixed"
    assert [check.outcome for check in found.checks] == ["evidence", "inconclusive"]
    assert found.rounds == 0


async def test_a_review_that_finds_nothing_leaves_the_verdict(bench: Bench, tmp_path: Path) -> None:
    result = await reviewed(bench, tmp_path, GOOD, *answered(gaming=False, findings=[]), economy=True)
    assert (result.verification.verdict, result.success) == ("verified", True)
    (child,) = await children_of(bench.store, result.delegation_id)
    assert child.request.tools == [*TOOLS]
    assert (child.request.approval_mode, child.request.economy) == ("readOnly", False)
    for part in ("Multiply the count", "return count * each", "It multiplies now."):
        assert part in child.request.context
    assert child.result
    assert result.usage.output_tokens > child.result.usage.output_tokens > 0


async def test_no_review_is_made_where_the_other_checks_fall_short(bench: Bench, tmp_path: Path) -> None:
    result = await reviewed(bench, tmp_path, WRONG + "# more\n", *answered(**GAMING), max_verify_rounds=0)
    assert result.verification.verdict == "inconclusive"
    assert await children_of(bench.store, result.delegation_id) == []
    assert "no review was made" in result.verification.checks[1].why


@pytest.mark.parametrize("turns", [[[say("Fine.")]], [[call("submit_result", gaming="no")], [say("done")]]])
async def test_a_review_without_an_answer_decides_nothing(bench: Bench, tmp_path: Path, turns: list[Any]) -> None:
    result = await reviewed(bench, tmp_path, GOOD, *turns)
    assert result.verification.verdict == "inconclusive"
    assert "without an answer" in result.verification.why


async def test_a_review_that_cannot_be_paid_decides_nothing(bench: Bench, tmp_path: Path) -> None:
    end = {"blocks": SAID, "usage": {"input": 10, "output": 99_900}}
    result = await reviewed(bench, tmp_path, GOOD, *answered(**GAMING), end=end, limits={"maxTokens": 100_000})
    assert result.verification.verdict == "inconclusive"
    assert "the review was not made" in result.verification.why


def test_a_review_needs_a_check_that_it_can_take_back() -> None:
    with pytest.raises(ValidationError, match="a review proves nothing alone"):
        DelegationRequest.model_validate({"task": "x", "verify": [{"kind": "review"}]})
    DelegationRequest.model_validate({"task": "x", "verify": ["true", {"kind": "review"}]})


def test_findings_are_named_with_their_number() -> None:
    many = {"gaming": True, "findings": [{"path": "a.py", "why": "x"}, {"path": "b.py", "why": "y"}]}
    assert judged(many).why.endswith("a.py:1: x (and 1 more)")
    assert judged({"gaming": True, "findings": []}).why.endswith("it names no place")
