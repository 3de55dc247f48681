"""Files of rules: their order among themselves and with the built-in rules, and every mistake with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.shared.errors import ErrorType, Misconfigured
from deputize.shared.request import ApprovalMode
from deputize.worker.policy import PolicyContext, decide, denial, judge
from deputize.worker.policy.base import Decision, PolicyCall, Verdict
from deputize.worker.policy.rule_file import load_rules, read_file
from deputize.worker.tools.context import Touches
from deputize.worker.tools.submit_result import SubmitResult
from tests.worker.policy.rule_files import call_of, rules_of, verdict_of

BASH = call_of("bash", command="make")
WRITE = call_of("write_file", path="a", content="x")
FETCH = call_of("web_fetch", url="https://docs.example.org/")
CALLS = {call.tool.name: call for call in (BASH, FETCH)}


def rule(name: str, decision: str, *more: str) -> str:
    return "\n".join(["[[rule]]", f'name = "{name}"', f'decision = "{decision}"', f'reason = "for {name}"', *more, ""])


def test_the_first_rule_that_matches_counts_and_names_its_place(tmp_path: Path) -> None:
    text = rule("one", "deny", 'tool = "edit_file"') + rule("two", "deny", 'tool = "bash"') + rule("three", "allow")
    place = f"{tmp_path}/rules.toml:6"
    assert verdict_of(tmp_path, text, BASH) == Verdict(Decision.DENY, "for two", "two", place=place)
    assert verdict_of(tmp_path, text, WRITE).rule == "three"


def test_a_higher_priority_precedes_files_and_lines(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(rule("low", "deny", "priority = -1") + rule("middle", "deny") + rule("same", "allow"))
    second.write_text(rule("high", "allow", "priority = 2") + rule("late", "allow"))
    context = PolicyContext(ApprovalMode.ASK, rules=load_rules([first, second]))
    names = [found.rule for each in context.rules if (found := each(BASH, context))]
    assert names == ["high", "middle", "same", "late", "low"]


def test_what_no_rule_of_a_file_matches_is_left_to_the_built_in_ones(tmp_path: Path) -> None:
    text = rule("one", "deny", 'tool = "bash"')
    assert verdict_of(tmp_path, text, WRITE).rule == "ask_before_changes"
    assert verdict_of(tmp_path, text, call_of("read_file", path="a")).rule == "allow_reads"


@pytest.mark.parametrize("mode", list(ApprovalMode))
def test_no_file_forbids_a_run_to_hand_in_the_output_that_was_asked_for(tmp_path: Path, mode: ApprovalMode) -> None:
    call = PolicyCall(SubmitResult({"type": "object"}), Touches())
    assert verdict_of(tmp_path, rule("all", "deny"), call, mode).rule == "allow_output"


@pytest.mark.parametrize("mode", list(ApprovalMode))
def test_no_file_allows_what_needs_a_sandbox_that_does_not_work(tmp_path: Path, mode: ApprovalMode) -> None:
    verdict = verdict_of(tmp_path, rule("all", "allow"), BASH, mode, broken="no bubblewrap")
    assert (verdict.rule, verdict.error_type) == ("require_sandbox", ErrorType.SANDBOX_UNAVAILABLE)


def test_no_file_allows_more_than_looking_in_a_read_only_run(tmp_path: Path) -> None:
    text = rule("all", "allow")
    for call in (BASH, WRITE, FETCH, call_of("mcp__git__push")):
        assert verdict_of(tmp_path, text, call, "readOnly").decision is Decision.DENY
        assert verdict_of(tmp_path, text, call, "ask").decision is Decision.ALLOW
    text = rule("src", "allow", 'path = "src/**"') + rule("rest", "deny", 'kind = "read"')
    assert verdict_of(tmp_path, text, call_of("read_file", path="src/a"), "readOnly").rule == "src"
    assert verdict_of(tmp_path, text, call_of("read_file", path="b"), "readOnly").rule == "rest"


@pytest.mark.parametrize(
    ("tool", "mode", "decision"),
    [
        ("bash", "ask", Decision.ASK),
        ("bash", "sandboxed", Decision.ALLOW),
        ("bash", "readOnly", Decision.DENY),
        ("web_fetch", "sandboxed", Decision.ASK),
        ("web_fetch", "auto", Decision.ALLOW),
    ],
)
def test_the_mode_decides_what_becomes_of_ask(tmp_path: Path, tool: str, mode: str, decision: Decision) -> None:
    assert verdict_of(tmp_path, rule("careful", "ask"), CALLS[tool], mode).decision is decision


def test_the_model_reads_the_reason(tmp_path: Path) -> None:
    texts = (rule("a", "deny").replace("for a", "use make ci. "), rule("a", "ask"))
    denied, asked = (denial(verdict_of(tmp_path, text, FETCH)) for text in texts)
    assert denied is not None
    assert (denied.type, denied.message) == (ErrorType.PERMISSION_DENIED, "denied: use make ci.")
    assert asked is not None
    assert asked.message.startswith("denied: for a. This needs a person's approval")
    assert asked.message.endswith("; a delegation with approvalMode auto may do it.")
    silent = verdict_of(tmp_path, '[[rule]]\nname = "x"\ndecision = "ask"\n', BASH)
    assert silent.reason == "the policy's rule x decides it"


async def test_a_pattern_that_takes_too_long_denies_the_call(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, rule("slow", "allow", "argument = { command = '(a|aa)+$' }"))
    context = PolicyContext(ApprovalMode.AUTO, rules=rules)
    verdict = await judge(call_of("bash", command="a" * 100 + "b"), context)
    assert (verdict.decision, verdict.rule) == (Decision.DENY, "slow")
    assert "take too long" in verdict.reason
    assert await judge(BASH, context) == decide(BASH, context)
    assert (await judge(BASH, PolicyContext(ApprovalMode.AUTO))).decision is Decision.ALLOW


HEAD = '[[rule]]\nname = "a"\ndecision = "deny"\nreason = "b"\n'


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (HEAD + 'taint = "workspace"', 5, r"taint.*'workspace' never taints; the sources that do are web, mcp:SERVER"),
        (HEAD + 'tol = "bash"', 5, r"tol: unknown key 'tol'; did you mean 'tool'\?"),
        ("[[rules]]", 1, r"unknown key 'rules'; did you mean 'rule'\?"),
        (HEAD + "tool = 5", 5, "tool: Input should be a valid list"),
        (HEAD + "tool = []", 5, "tool: it is empty, so nothing could match"),
        (HEAD + 'tool = ["a", ""]', 5, r"tool\.1: String should have at least 1 character"),
        (HEAD + 'kind = ["read", "rite"]', 5, r"kind\.1: Input should be 'read', 'edit', .*or 'other'"),
        (HEAD + 'mode = "read_only"', 5, r"mode\.0: Input should be 'ask', 'sandboxed', 'auto' or 'readOnly'"),
        (HEAD + "\n[rule.argument]\npath = 'a'\ncommand = '('", 8, r"argument\.command: '\(' is not a valid regular"),
        (HEAD + "argument = { command = '[' }", 5, r"argument\.command: '\[' is not a valid regular expression"),
        (HEAD + "argument = {}", 5, "argument: Dictionary should have at least 1 item"),
        (
            HEAD + "annotations = { readOnly = true }",
            5,
            r"annotations\.readOnly: unknown key .*did you mean 'readOnlyHint'",
        ),
        (HEAD + 'annotations = { readOnlyHint = "yes" }', 5, "annotations.readOnlyHint: Input should be a valid bool"),
        (HEAD + 'depth = "=> 1"', 5, "depth: '=> 1' is neither a number nor a comparison such as '>= 1'"),
        (HEAD + "depth = true", 5, "depth: it is neither a number nor a comparison"),
        (HEAD + "depth = -1", 5, "depth: '-1' is neither a number"),
        (HEAD + 'priority = "high"', 5, "priority: Input should be a valid integer"),
        (
            HEAD + 'command_prefix = ["git", "git log | sh"]',
            5,
            r"command_prefix\.1: .*not the beginning of one command",
        ),
        (HEAD + 'command_prefix = " "', 5, r"command_prefix\.0: a prefix needs a word, such as 'git status'"),
        (HEAD + 'command_prefix = "a \'b"', 5, r"command_prefix\.0: .* is not made of words: No closing quotation"),
        (HEAD + f'path = "{"{a,b}" * 9}"', 5, r"path\.0: the pattern has more than 256 alternatives"),
        (HEAD + 'label = { team = "" }', 5, r"label\.team: String should have at least 1 character"),
        (HEAD.replace("deny", "denie"), 3, "decision: Input should be 'allow', 'ask' or 'deny'"),
        (HEAD.replace('name = "a"', ""), 1, "name: Field required"),
        (HEAD.replace('"b"', '" "'), 1, "a rule that denies needs a reason, which the model reads"),
        (HEAD + HEAD.replace('reason = "b"', ""), 5, "a rule that denies needs a reason"),
        ('rule = [{ name = "a" }]', 1, "decision: Field required"),
        (HEAD + "tool = bash", 5, "it is not valid TOML: Invalid value"),
        (HEAD + '[[example]]\ncall = "bash"\nexpect = "no"', 7, "expect: Input should be 'allow', 'ask' or 'deny'"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_its_correction(tmp_path: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(Misconfigured, match=rf"^{tmp_path}/rules.toml:{line}: {said}"):
        rules_of(tmp_path, text)


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"rules.toml:5: depth: .*; .*rules.toml:6: tol: "):
        rules_of(tmp_path, HEAD + 'depth = "x"\ntol = 1')


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"the policy file .*gone.toml does not exist; correct DEPUTIZE_POLICY"):
        load_rules([tmp_path / "gone.toml"])
    (tmp_path / "x.toml").write_bytes(b"\xff")
    with pytest.raises(Misconfigured, match=rf"{tmp_path}/x.toml: it is not valid TOML: .*utf-8"):
        load_rules([tmp_path / "x.toml"])


def test_rules_written_inline_are_rules(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b'# one\r\nrule = [{ name = "a", decision = "allow" }]\r\n')
    (found,) = read_file(tmp_path / "x.toml").rules
    assert found.place == f"{tmp_path}/x.toml:2"
