"""`deputize policy`: what it prints, its exit codes, and that it asks the engine of the workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from deputize.orchestrator.cli import cli
from deputize.orchestrator.cli.policy import policy
from tests.hostile.texts import ACTING, assert_harmless
from tests.orchestrator.command_line import deputize
from tests.runs.bench import call, say, script

RULES = """
[[rule]]
name = "push"
decision = "deny"
reason = "people push"
command_prefix = "git push"

[[rule]]
name = "deep"
decision = "deny"
reason = "no files from there"
kind = "edit"
depth = ">= 1"
label = { team = "docs" }

[[rule]]
name = "read"
decision = "deny"
reason = "it has read that server's words"
taint = "mcp:*"

[[example]]
call = 'glob {"pattern": "*"}'
taint = "mcp:git"
expect = "deny"

[[example]]
call = 'bash {"command": "cd x && git push"}'
expect = "deny"
"""
WRONG = '[[rule]]\ntol = 1\nname = "x"\ndecision = "ask"\n'
WRITING = 'write_file {"path": "a", "content": "x"}'


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    return path


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="run")
def run_(policy_context: click.Context) -> Run:
    """Runs `deputize policy` in this process."""

    def run(home: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
        runner = CliRunner(env={"DEPUTIZE_HOME": str(home)} | variables)
        done = runner.invoke(cli, ["policy", *arguments], parent=policy_context)
        return done.exit_code, done.stdout, done.stderr

    return run


def test_explain_prints_the_decision_the_rule_its_line_and_the_reason(run: Run, rules: Path, tmp_path: Path) -> None:
    asked = "explain", 'bash {"command": "git push"}'
    line = "  class   ask: git push may change something\n  ask     git push: git push may change something\n"
    expected = f"deny\n  rule    push ({rules}:2)\n  reason  people push\n{line}"
    assert run(tmp_path, *asked, DEPUTIZE_POLICY=str(rules)) == (0, expected, "")
    assert run(tmp_path, *asked, "--policy", str(rules)) == (0, expected, "")
    builtin = (
        "allow\n  rule    ask_before_changes (built in)\n  reason  bash changes something (execute)\n"
        "  note    approvalMode sandboxed turns ask into allow\n"
    )
    assert run(tmp_path, *asked) == (0, builtin + line, "")


@pytest.mark.requirement("S002-069")
def test_explain_prints_the_class_of_each_command_of_a_line(run: Run, tmp_path: Path) -> None:
    asked = "explain", 'bash {"command": "ls && timeout 5 sudo id"}'
    code, out, _ = run(tmp_path, *asked)
    assert (code, out.splitlines()[0]) == (0, "deny")
    assert out.splitlines()[3:] == [
        "  class   deny: sudo gets the rights of another user",
        "  allow   ls: ls only reads",
        "  allow   timeout 5 sudo id: timeout only starts a command",
        "  deny    sudo id: sudo gets the rights of another user",
    ]
    code, out, _ = run(tmp_path, "explain", 'bash {"command": "ls > x"}')
    assert (code, out.splitlines()[3:]) == (
        0,
        [
            "  note    approvalMode sandboxed turns ask into allow",
            "  class   ask: it has a redirection",
            "  effect  has a redirection, so that no rule and no remembered answer covers it",
        ],
    )


def test_explain_takes_the_run_into_account(run: Run, rules: Path, tmp_path: Path) -> None:
    def rule(*options: str) -> str:
        code, out, _ = run(tmp_path, "explain", WRITING, "--policy", str(rules), "--json", *options)
        assert code == 0
        return json.loads(out)["rule"] + " " + json.loads(out)["decision"]

    assert rule("--depth", "1", "--label", "team:docs") == "deep deny"
    assert rule("--depth", "1") == "ask_before_changes allow"
    assert rule("--label", "team:docs", "--mode", "ask") == "ask_before_changes ask"
    assert rule("--mode", "readOnly") == "ask_before_changes deny"
    assert rule("--taint", "mcp:git", "--mode", "ask") == "read deny"
    assert rule("--taint", "web", "--mode", "ask") == "ask_before_changes ask"
    code, _, error = run(tmp_path, "explain", WRITING, "--taint", "wbe")
    assert (code, "'wbe' never taints; the sources that do are web, mcp:SERVER and subagent:ID" in error) == (2, True)
    (tmp_path / "link").symlink_to("/")
    rules.write_text('[[rule]]\nname = "out"\ndecision = "deny"\nreason = "r"\npath = "/**"\n')
    assert rule("-w", str(tmp_path)).startswith("ask_before_changes")
    code, out, _ = run(tmp_path, "explain", 'read_file {"path": "link/x"}', "--policy", str(rules), "-w", str(tmp_path))
    assert (code, out.splitlines()[0]) == (0, "deny")


def test_test_compares_examples_and_ends_with_1_on_a_difference(run: Run, rules: Path, tmp_path: Path) -> None:
    assert run(tmp_path, "test", str(rules)) == (0, "2 examples, none decided otherwise\n", "")
    rules.write_text(RULES + f"\n[[example]]\ncall = '{WRITING}'\nexpect = 'deny'\n")
    code, out, _ = run(tmp_path, "test", str(rules))
    expected = (
        f"{rules}:31: {WRITING}\n  expected deny, decided allow by ask_before_changes (built in): "
        "write_file changes something (edit)\n3 examples, 1 decided otherwise\n"
    )
    assert (code, out) == (1, expected)
    code, out, _ = run(tmp_path, "test", str(rules), "--json")
    assert (code, [json.loads(line)["decision"] for line in out.splitlines()]) == (1, ["deny", "deny", "allow"])


def test_a_file_is_tested_without_the_rules_of_others(run: Run, rules: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('[[rule]]\nname = "all"\ndecision = "allow"\n')
    assert run(tmp_path, "test", str(rules), DEPUTIZE_POLICY=str(other))[0] == 0
    assert run(tmp_path, "test", str(other))[0] == 2  # it has no example


def test_mistakes_of_the_question_end_with_2_and_those_of_a_file_with_3(run: Run, rules: Path, tmp_path: Path) -> None:
    code, _, error = run(tmp_path, "explain", 'bash {"comand": "x"}')
    assert (code, "comand" in error) == (2, True)
    rules.write_text(WRONG)
    for asked in (("explain", "bash", "--policy", str(rules)), ("test", str(rules))):
        code, out, error = run(tmp_path, *asked)
        assert (code, out) == (3, "")
        assert f"{rules}:2: tol: unknown key 'tol'; did you mean 'tool'?" in error


def test_a_process_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise ImportError('not this one')")
    runner = CliRunner(env={"DEPUTIZE_HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)})
    done = runner.invoke(cli, ["policy", "explain", "bash"])
    code, error = done.exit_code, done.stderr
    assert (code, "the policy cannot be asked: ImportError: not this one" in error) == (3, True)


def quoted(text: str) -> str:
    """A string of TOML, which has no escapes for halves of a character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_nothing_that_it_prints_acts_on_a_terminal(run: Run, tmp_path: Path, more: list[str]) -> None:
    path = tmp_path / "rules\x1b[31m.toml"
    hostile = quoted(ACTING)
    path.write_text(
        f"[[rule]]\nname = {hostile}\ndecision = 'deny'\nreason = {hostile}\n"
        f"[[example]]\ncall = {quoted('glob ' + json.dumps({'pattern': ACTING}))}\nexpect = 'allow'\n"
    )
    for asked in (["explain", 'glob {"pattern": "*"}', "--policy", str(path)], ["test", str(path)]):
        code, out, error = run(tmp_path, *asked, *more)
        assert (code in (0, 1), bool(out)) == (True, True), error
        assert_harmless(out + error)


def test_every_part_of_it_has_help() -> None:
    for name, command in policy.commands.items():
        assert command.help, name
        assert all(each.help for each in command.params if isinstance(each, click.Option)), name


@pytest.mark.costly
@pytest.mark.system
async def test_up_and_run_end_with_3_where_a_file_is_wrong_and_heed_one_that_is_right(
    rules: Path, tmp_path: Path
) -> None:
    model = script(tmp_path, [call("bash", command="git push")], [say("done")])
    given: dict[str, Any] = {
        "DEPUTIZE_HOME": str(tmp_path / "h"),
        "DEPUTIZE_MODEL": model,
        "DEPUTIZE_POLICY": str(rules),
    }
    done = await deputize("run", "push it", "--json", **given)
    assert (done.code, "denied: people push." in done.out) == (6, True), done.err
    rules.write_text(WRONG)
    for asked in (("up", "--port", "0"), ("run", "push it")):
        done = await deputize(*asked, **given)
        assert (done.code, f"{rules}:2: tol: unknown key 'tol'" in done.err) == (3, True), done.err
