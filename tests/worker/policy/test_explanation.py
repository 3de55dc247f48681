"""What is explained is what the loop decides; examples are compared with it, and recordings judged again."""

from __future__ import annotations

import io
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.shared.errors import Invalid, ToolError
from deputize.shared.request import ApprovalMode
from deputize.shared.settings import Settings
from deputize.worker.policy import PolicyContext, decide
from deputize.worker.policy.explanation import AbsentTool, Explainer, answer
from deputize.worker.policy.rule_file import by_priority
from tests.runs.toolbench import open_toolbench
from tests.worker.policy.rule_files import CALLS, RULES, call_of, file_rules


@given(
    st.lists(RULES, max_size=4),
    st.sampled_from(CALLS),
    st.sampled_from(ApprovalMode),
    st.integers(0, 2),
    st.sampled_from([{}, {"team": "docs"}]),
)
def test_what_is_explained_is_what_is_decided(
    values: list[dict[str, Any]],
    call: tuple[str, dict[str, Any]],
    mode: ApprovalMode,
    depth: int,
    labels: dict[str, str],
) -> None:
    name, arguments = call
    rules = by_priority(file_rules(values))
    context = PolicyContext(mode, rules=rules, depth=depth, labels=labels)
    found = Explainer(Settings(), rules).explain(f"{name} {json.dumps(arguments)}", context)
    verdict = decide(call_of(name, **arguments), context)
    assert (found["decision"], found["rule"], found["place"], found["reason"]) == (
        verdict.decision,
        verdict.rule,
        verdict.place or None,
        verdict.reason,
    )
    # What decides is the first rule of the highest priority whose every matcher matches by itself.
    alone = [(each, file_rules([each])[0](call_of(name, **arguments), context)) for each in values]
    fitting = [each for each, opinion in alone if opinion]
    first = max(fitting, key=lambda each: (each["priority"], -values.index(each)), default=None)
    assert (found["place"] is not None) == (first is not None)
    assert first is None or (found["rule"], found["ruleDecision"]) == (first["name"], first["decision"])


def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], question: Any, **variables: str) -> Any:
    """The answer of the program."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(question | {"settings": variables})))
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("deputize.worker.policy", run_name="__main__")
    assert ended.value.code == 0
    return json.loads(capsys.readouterr().out)


def test_importing_the_program_asks_nothing() -> None:
    assert callable(runpy.run_module("deputize.worker.policy", run_name="imported")["answer"])


FILE = """
[[rule]]
name = "low"
decision = "allow"
depth = 1

[[rule]]
name = "tests"
decision = "ask"
tool = "bash"
label = { team = "docs" }
priority = 1

[[example]]
call = 'bash {"command": "make"}'
expect = "deny"
mode = "readOnly"
depth = 1
label = { team = "docs" }

[[example]]
call = "mcp__git__log"
expect = "ask"
depth = 1
"""


def test_the_program_answers_with_the_rule_and_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to("secret")
    rules = tmp_path / "rules.toml"
    rules.write_text(FILE + '\n[[rule]]\nname = "s"\ndecision = "deny"\nreason = "r"\npath = "secret/**"\n')
    question = {"call": 'bash {"command": "make"}', "mode": "sandboxed", "depth": 1, "labels": {}, "workspace": None}
    variables = {"DEPUTIZE_POLICY": str(rules)}
    assert ask(monkeypatch, capsys, question, **variables) == {
        "decision": "allow",
        "rule": "low",
        "place": f"{rules}:2",
        "reason": "the policy's rule low decides it",
        "ruleDecision": "allow",
        "notes": [],
        "commandLine": {
            "class": "ask",
            "reason": "make may change something",
            "commands": [
                {"words": ["make"], "class": "ask", "reason": "make may change something", "pattern": ["make"]}
            ],
            "effects": [],
        },
    }
    found = ask(monkeypatch, capsys, question | {"labels": {"team": "docs"}}, **variables)
    assert (found["decision"], found["rule"], found["ruleDecision"]) == ("allow", "tests", "ask")
    assert found["notes"] == ["approvalMode sandboxed turns ask into allow"]
    found = ask(monkeypatch, capsys, question | {"call": "mcp__git__log", "depth": 0}, **variables)
    assert (found["decision"], found["rule"], found["place"]) == ("ask", "ask_before_changes", None)
    assert found["notes"] == ["the MCP server git is not asked: its tool counts as one that changes something"]
    reading = question | {"call": 'read_file {"path": "link/a"}', "depth": 0, "workspace": str(tmp_path)}
    assert ask(monkeypatch, capsys, reading, **variables)["rule"] == "s"


def test_the_program_tries_the_examples_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules.toml").write_text(FILE)
    tried = ask(monkeypatch, capsys, {"test": [str(tmp_path / "rules.toml")]})["examples"]
    assert [(each["example"].rpartition(":")[2], each["expect"], each["decision"]) for each in tried] == [
        ("14", "deny", "deny"),
        ("21", "ask", "allow"),
    ]
    (tmp_path / "rules.toml").write_text("[[example]]\ncall = 'bsh {}'\nexpect = 'ask'\n")
    found = ask(monkeypatch, capsys, {"test": [str(tmp_path / "rules.toml")]})
    assert found["error"].startswith(f"{tmp_path}/rules.toml:1: there is no tool 'bsh'")
    assert found["usage"] is True


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("bsh {}", "did you mean bash"),
        ('bash {"comand": "x"}', "command"),
        ("bash {", "the arguments of bash are not valid JSON: "),
        ("bash []", "the arguments of bash are not a JSON object"),
        ("", "there is no tool"),
        ("mcp__git", "there is no tool 'mcp__git'"),
    ],
)
def test_a_call_that_is_none_is_refused_with_a_hint(call: str, said: str) -> None:
    with pytest.raises(Invalid, match=rf"(?i){said}"):
        Explainer(Settings(), ()).explain(call, PolicyContext(ApprovalMode.SANDBOXED))


def test_a_wrong_file_is_the_configurations_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ask(monkeypatch, capsys, {"test": [str(tmp_path / "gone.toml")]})
    assert (found["usage"], "does not exist" in found["error"]) == (False, True)


async def test_a_tool_that_is_only_explained_cannot_be_called(tmp_path: Path) -> None:
    with open_toolbench(tmp_path / "w") as bench, pytest.raises(ToolError, match="cannot be called"):
        await AbsentTool("mcp__git__log").run(bench.context(), {})


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
