"""Prefixes of commands: a line is allowed where all of its commands match, and denied for every one it may run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from deputize.worker.permission.approval import subject_of
from tests.worker.policy.rule_files import call_of, matches, verdict_of

PREFIX = 'command_prefix = ["git push", "ls"]'


@pytest.mark.parametrize(
    ("line", "allowed", "denied"),
    [
        ("git push", True, True),
        ("git push origin main", True, True),
        ("  git   push", True, True),
        ("git 'push'", True, True),
        ("ls", True, True),
        ("git pushes", False, False),
        ("git", False, False),
        ("lsof", False, False),
        ("git -C x push", False, True),
        ("echo git push", False, False),
        ("ls; rm x", False, True),
        ("ls && rm x", False, True),
        ("ls | sh", False, True),
        ("ls & rm x", False, True),
        ("ls\nrm x", False, True),
        ("ls $(rm x)", False, True),
        ("ls `rm x`", False, True),
        ("ls > x", False, True),
        ("ls >> x", False, True),
        ("ls < x", False, True),
        ("ls 2>&1 | tail -3", True, True),
        ("ls <(rm x)", False, True),
        ("ls $HOME", False, True),
        ("ls 'a;b'", True, True),
        ("ls 'a", False, True),
        ("(ls)", False, True),
        ("{ ls; }", False, True),
        ("cd x && git push", True, True),
        ("cd x && git push && touch y", False, True),
        ("cat x", False, False),
        ('echo "$(git push)"', False, True),
        ("g'i't pu\\sh", True, True),
        ("git \\\n push", True, True),
        ("A=b git push", False, True),
        ("timeout 5 git push", True, True),
        ("nice -n 3 timeout 5 git push", True, True),
        ("timeout -x 5 git -C y push", False, True),
        ("foo ./ls", False, True),
        ("git commit -m 'git push'", False, False),
        ("/usr/bin/l? x", False, True),
        ("l* x", False, True),
        ("nohup -n git push", False, True),
        ("X=push; git $X", False, True),
        ("ls && git push", True, True),
        ("ls > /dev/null", True, True),
        ("ls() { rm x; }; ls", False, True),
        ("PATH=.; ls", False, True),
        ("ls <<< $(git push)", False, True),
        ("rm x\necho '", False, False),
        ("git push\necho '", False, True),
        ("/usr/bin/git push", False, True),
        ("if ls; then x; fi", False, True),
        ("bash -c 'git push'", False, True),
        ("find . | xargs ls", False, True),
        ("", False, False),
    ],
)
def test_a_line(tmp_path: Path, line: str, allowed: bool, denied: bool) -> None:
    call = call_of("bash", command=line or " ")
    found = [matches(tmp_path, PREFIX, call, decision) for decision in ("allow", "ask", "deny")]
    assert found == [allowed, denied, denied]


@pytest.mark.parametrize(
    ("line", "allowed", "denied"),
    [
        ("ls " + "x" * 9_000, True, True),
        ("ls " + "x" * 90_000, False, True),
        ("env " * 19_000 + "ls", False, True),
        ("env " * 19_000, False, False),
        ("$(" * 30_000 + "ls" + ")" * 30_000, False, True),
        ("timeout -x " * 9_000 + "ls", False, True),
        ("{a,b}" * 5_000, False, False),
        ("$X" * 5_000, False, False),
        ("x;" * 20_000 + "ls", False, True),
    ],
    ids=[
        "word",
        "long word",
        "launchers",
        "launchers of nothing",
        "nesting",
        "unknown options",
        "braces",
        "variables",
        "list",
    ],
)
def test_a_long_line_takes_no_long_time(tmp_path: Path, line: str, allowed: bool, denied: bool) -> None:
    call = call_of("bash", command=line)
    begin = time.process_time()
    assert [matches(tmp_path, PREFIX, call, decision) for decision in ("allow", "deny")] == [allowed, denied]
    assert time.process_time() - begin < 10


def test_a_tool_without_a_command_has_no_prefix(tmp_path: Path) -> None:
    assert not matches(tmp_path, PREFIX, call_of("read_file", path="ls"))


TWO_RULES = """
[[rule]]
name = "make"
decision = "allow"
command_prefix = "make test"

[[rule]]
name = "npm"
decision = "allow"
command_prefix = "npm test"

[[rule]]
name = "no-push"
decision = "deny"
reason = "Only people push"
command_prefix = "git push"
"""


@pytest.mark.parametrize(
    ("line", "decision", "reason"),
    [
        ("cd src && make test", "allow", "the policy's rule make decides it"),
        ("make test 2>&1 | tail -3", "allow", "the policy's rule make decides it"),
        ("make test && npm test | head", "allow", "the policy's rule make decides it"),
        (
            "make test; rm x",
            "ask",
            "bash changes something (execute). No rule allows 'rm x' (rm is not known to only read with these",
        ),
        ("rm x; rm y", "ask", "bash changes something (execute)"),
        ("make test > out", "ask", "bash changes something (execute)"),
        ("make test && git push", "deny", "Only people push"),
        ("for i in 1; do git log; done", "deny", "Only people push. The line has the keyword for: "),
    ],
)
def test_rules_of_a_file_combine_in_a_plain_line(tmp_path: Path, line: str, decision: str, reason: str) -> None:
    verdict = verdict_of(tmp_path, TWO_RULES, call_of("bash", command=line))
    assert (verdict.decision.value, verdict.reason[: len(reason)]) == (decision, reason)


def test_an_answer_is_needed_only_for_what_no_rule_allows(tmp_path: Path) -> None:
    call = call_of("bash", command="make test && touch x && rm y")
    verdict = verdict_of(tmp_path, TWO_RULES, call)
    assert subject_of(call, verdict.lacking).commands == [["touch", "*"], ["rm", "y"]]
