"""The questions that the policy's process answers, here without a process; and what a replay cannot judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deputize.worker.policy.explanation import answer

DENIED = """
[[rule]]
name = "pushes"
decision = "deny"
reason = "people push"
command_prefix = "git push"
[[rule]]
name = "server"
decision = "allow"
tool = "mcp__git__push"
[[example]]
call = 'bash {"command": "timeout 5 git push"}'
expect = "deny"
"""
TRAITS = {"name": "mcp__git__push", "kind": "other", "effect": "effectful", "source": "mcp", "server": "git"}
RUN = {"id": "dlg_1", "mode": "sandboxed", "depth": 0, "labels": {}, "furtherTools": [TRAITS | {"remote": "push"}]}


def recorded(name: str, **arguments: Any) -> dict[str, Any]:
    return {"turn": 1, "call": "1", "name": name, "arguments": arguments, "taintedBy": []}


@pytest.fixture
def rules(tmp_path: Path) -> str:
    path = tmp_path / "rules.toml"
    path.write_text(DENIED)
    return str(path)


def test_a_replay_names_the_calls_that_other_rules_decide_differently(rules: str) -> None:
    calls = [
        recorded("bash", command="timeout 5 git push"),
        recorded("bash", command="ls", timeout=5),
        recorded("mcp__git__push"),
    ]
    (found,) = answer({"settings": {}, "replay": [rules], "runs": [RUN | {"calls": calls}]})["runs"]
    assert (found["id"], found["judged"], found["notJudged"]) == ("dlg_1", 3, {})
    decisions = [(each["name"], each["old"]["decision"], each["new"]["decision"]) for each in found["changes"]]
    assert decisions == [("bash", "allow", "deny"), ("mcp__git__push", "ask", "allow")]
    new = found["changes"][0]["new"]
    assert (new["rule"], new["place"], new["reason"]) == ("pushes", f"{rules}:2", "people push")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (recorded("bash", command="echo ***"), "masked"),
        (recorded("write_file", path="a", content=[{"text": "cut…"}]), "cut"),
        (recorded("gone_tool"), "unknownTool"),
        (recorded("bash", comand="ls"), "refused"),
    ],
)
def test_a_call_that_cannot_be_judged_is_counted_by_its_reason(rules: str, call: dict[str, Any], reason: str) -> None:
    (found,) = answer({"settings": {}, "replay": [rules], "runs": [RUN | {"calls": [call]}]})["runs"]
    assert (found["judged"], found["notJudged"], found["changes"]) == (0, {reason: 1}, [])


def test_without_the_depth_of_a_run_nothing_of_it_is_judged(rules: str) -> None:
    run = RUN | {"depth": None, "calls": [recorded("bash", command="git push")]}
    (found,) = answer({"settings": {}, "replay": [rules], "runs": [run]})["runs"]
    assert found["notJudged"] == {"unknownDepth": 1}


def test_examples_explanations_and_mistakes_are_answered_too(rules: str) -> None:
    (example,) = answer({"settings": {}, "test": [rules]})["examples"]
    assert example["decision"] == "deny"
    question = {"settings": {}, "mode": "auto", "depth": 0, "labels": {}, "workspace": None}
    explained = answer(question | {"call": 'bash {"command": "ls \\u0007"}'})
    assert (explained["decision"], explained["rule"]) == ("deny", "forbid_commands")
    wrong = answer(question | {"call": "bash {}", "taint": ["parent"]})
    assert wrong["usage"]
    assert wrong["error"].startswith("--taint: ")
