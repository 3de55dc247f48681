"""What each matcher of a rule compares; and that in doubt a rule allows less, and denies more."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.facts import Trust
from deputize.worker.permission import subject_of
from deputize.worker.policy import PolicyCall
from deputize.worker.policy.matchers import MATCHERS, argument_text, real_path
from deputize.worker.policy.rule_file import RuleFields
from deputize.worker.tools.context import Touches
from tests.worker.policy.rule_files import TOOLS, call_of, matches, verdict_of

TAINTED = Trust(sources=["parent", "mcp:git", "web"], tainted_by=["web"])
CALLS = {
    "BASH": call_of("bash", command="git status"),
    "WRITE": call_of("write_file", path="src/a.py", content="x"),
    "READ": call_of("read_file", path="src/a.py"),
    "LOG": call_of("mcp__git__git_log", limit=5, names=["a", "é"]),
    "FETCH": call_of("web_fetch", url="https://Docs.example.org/guide"),
}


def test_every_matcher_is_a_key_of_a_rule() -> None:
    assert set(RuleFields.model_fields) - {"name", "decision", "reason", "priority"} == set(MATCHERS)


@pytest.mark.parametrize(
    ("matcher", "call", "expected"),
    [
        ("", "BASH", True),
        ('tool = "bash"', "BASH", True),
        ('tool = "bash"', "WRITE", False),
        ('tool = ["read_*", "write_*"]', "WRITE", True),
        ('tool = "write"', "WRITE", "write" in TOOLS["write_file"].aliases),
        ('tool = "mcp__git__*"', "LOG", True),
        ('kind = "execute"', "BASH", True),
        ('kind = ["edit", "delete"]', "WRITE", True),
        ('kind = ["edit", "delete"]', "BASH", False),
        ('server = "git"', "LOG", True),
        ('server = ["x", "g*"]', "LOG", True),
        ('server = "git"', "BASH", False),
        ('server = "*"', "BASH", False),
        ("annotations = { readOnlyHint = true }", "READ", True),
        ("annotations = { readOnlyHint = true }", "WRITE", False),
        ("annotations = { readOnlyHint = false, idempotentHint = false }", "LOG", True),
        ("annotations = { readOnlyHint = false, idempotentHint = true }", "LOG", False),
        ("argument = { command = 'git (status|log)' }", "BASH", True),
        ("argument = { command = 'git' }", "BASH", False),
        ("argument = { other = '.*' }", "BASH", False),
        ("argument = { limit = '[1-9]', names = '.*\"é\".*' }", "LOG", True),
        ("argument = { limit = '[1-9]', names = '' }", "LOG", False),
        ('host = "docs.example.org"', "FETCH", True),
        ('host = ["x", "*.EXAMPLE.org"]', "FETCH", True),
        ('host = "example.org"', "FETCH", False),
        ('host = "*"', "BASH", False),
        ('tool = "bash"\nkind = "edit"', "BASH", False),
        ('path = "**"', "BASH", False),
        ('command_prefix = "git"', "READ", False),
    ],
    ids=repr,
)
@pytest.mark.parametrize("decision", ["allow", "ask", "deny"])
def test_a_matcher_decides_on_a_call(tmp_path: Path, matcher: str, call: str, expected: bool, decision: str) -> None:
    assert matches(tmp_path, matcher, CALLS[call], decision) is expected


@pytest.mark.parametrize(
    ("matcher", "run", "expected"),
    [
        ('mode = "auto"', {"mode": "auto"}, True),
        ('mode = ["ask", "auto"]', {"mode": "sandboxed"}, False),
        ("depth = 1", {"depth": 1}, True),
        ("depth = 1", {"depth": 2}, False),
        ('depth = ">= 1"', {"depth": 1}, True),
        ('depth = ">= 1"', {}, False),
        ('depth = "<2"', {"depth": 1}, True),
        ('depth = "<= 1"', {"depth": 2}, False),
        ('depth = "> 1"', {"depth": 2}, True),
        ('depth = "!= 0"', {}, False),
        ('depth = "== 0"', {}, True),
        ('label = { team = "docs" }', {"labels": {"team": "docs"}}, True),
        ('label = { team = "d*", tier = "?" }', {"labels": {"team": "docs", "tier": "1"}}, True),
        ('label = { team = "d*", tier = "?" }', {"labels": {"team": "docs"}}, False),
        ('label = { team = "*" }', {"labels": {"other": "docs"}}, False),
        ('taint = "web"', {"trust": TAINTED}, True),
        ('taint = ["web", "mcp:*"]', {"trust": TAINTED}, True),
        ('taint = "mcp:*"', {"trust": TAINTED}, False),  # what was read of it is trusted
        ('taint = "subagent:*"', {"trust": TAINTED}, False),
        ('taint = "*"', {"trust": TAINTED}, True),
        ('taint = "*"', {"trust": Trust(sources=["parent", "workspace"])}, False),
    ],
    ids=repr,
)
def test_a_matcher_decides_on_the_run(tmp_path: Path, matcher: str, run: dict[str, Any], expected: bool) -> None:
    assert matches(tmp_path, matcher, CALLS["BASH"], **run) is expected


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("src/**", "src/deep/a.py", True),
        ("src/**", "src", True),
        ("src/*", "src/deep/a.py", False),
        ("src/*.{py,md}", "/workspace/src/a.md", True),
        ("src/**", "srcs/a.py", False),
        ("src/**", "src/../key", False),
        ("key", "src/../key", True),
        ("**", ".", True),
        ("**", "../x", False),
        ("**/a.py", "/elsewhere/a.py", False),
        ("/elsewhere/**", "/elsewhere/a.py", True),
        ("/elsewhere/**", "elsewhere/a.py", False),
        ("secret/**", "link/a", True),
        ("link/**", "link/a", False),
        ("/**", "out/x", True),
        ("secret/**", "absolute/a", True),
        ("src/*", "src/a\0b", True),
    ],
    ids=repr,
)
@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_a_path_is_compared_as_it_really_is(
    tmp_path: Path, pattern: str, path: str, expected: bool, decision: str
) -> None:
    root = tmp_path / "workspace"
    for folder in ("src", "secret"):
        (root / folder).mkdir(parents=True)
    (root / "link").symlink_to("secret")
    (root / "absolute").symlink_to("/workspace/secret")
    (root / "out").symlink_to(tmp_path)
    call = PolicyCall(TOOLS["read_file"], Touches(paths=(path,)))
    assert matches(tmp_path, f'path = "{pattern}"', call, decision, workspace=root) is expected


@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_a_link_that_cannot_be_read_allows_nothing_and_raises_nothing(tmp_path: Path, decision: str) -> None:
    """Those of a process that has ended, until it is waited for."""
    ended = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
    call = PolicyCall(TOOLS["read_file"], Touches(paths=(f"/proc/{ended}/cwd/keys/x",)))
    try:
        assert not (matches(tmp_path, 'path = "keys/**"', call, decision) and decision == "allow")
    finally:
        os.waitpid(ended, 0)


def test_an_absolute_path_below_the_workspace_is_inside(tmp_path: Path) -> None:
    assert real_path(str(tmp_path / "a"), tmp_path) == real_path("/workspace/a", tmp_path) == "a"
    assert real_path("/workspace/a", None) == real_path("a", None) == "a"
    assert real_path("/etc/../x", None) == "/x"


@pytest.mark.parametrize(
    ("decision", "expected"), [("allow", (False, True)), ("deny", (True, True)), ("ask", (True, True))]
)
def test_all_paths_and_hosts_must_be_allowed_and_one_is_enough_to_deny(
    tmp_path: Path, decision: str, expected: tuple[bool, bool]
) -> None:
    touched = {
        "path": (Touches(paths=("a", "b")), Touches(paths=("a", "a"))),
        "host": (Touches(hosts=("a", "b")), Touches(hosts=("a", "A"))),
    }
    for key, both in touched.items():
        calls = [PolicyCall(TOOLS["read_file"], each) for each in both]
        assert tuple(matches(tmp_path, f'{key} = "a"', call, decision) for call in calls) == expected


def test_an_argument_is_compared_under_its_documented_name_and_with_its_default(tmp_path: Path) -> None:
    tool = next(tool for tool in TOOLS.values() if tool.params.other_names)
    other, name = next(iter(tool.params.other_names.items()))
    given = {key: "x" for key, field in tool.params.model_fields.items() if field.is_required()} | {name: "x"}
    given[other] = given.pop(name)
    assert matches(tmp_path, f"argument = {{ {name} = '.*' }}", call_of(tool.name, **given))
    assert matches(tmp_path, "argument = { path = '.' }", call_of("grep", pattern="x"))


@pytest.mark.parametrize(("decision", "expected"), [("allow", False), ("deny", True)])
def test_a_line_end_does_not_bring_more_into_what_is_allowed(tmp_path: Path, decision: str, expected: bool) -> None:
    call = call_of("bash", command="ls a\nrm b")
    assert matches(tmp_path, "argument = { command = 'ls .*' }", call, decision) is expected


FORCED = 'argument = { how = \'.*"force":true.*"branch":"main".*\' }'


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"force": True, "branch": "main"}, True),
        ({"branch": "main", "force": True}, True),
        ({"a": 1, "branch": "main", "z": [2], "force": True, "y": None}, True),
        ({"outer": [{"branch": "main", "force": True}]}, True),
        ({"branch": "main", "force": False}, False),
        ({"branch": "other", "force": True}, False),
        ({"branch": "main"}, False),
        ([], False),
        ({f"key{number}": number for number in range(2000)} | {"branch": "main", "force": True}, True),
    ],
)
@pytest.mark.parametrize("decision", ["deny", "allow"])
def test_the_order_of_the_keys_of_an_object_means_nothing(
    tmp_path: Path, how: Any, expected: bool, decision: str
) -> None:
    call = call_of("mcp__git__push", how=how)
    assert matches(tmp_path, FORCED, call, decision) is expected


def test_an_object_with_more_keys_of_the_pattern_than_can_be_ordered_is_denied(tmp_path: Path) -> None:
    names = [f"k{number}" for number in range(8)]
    rule = f"argument = {{ how = '.*({'|'.join(names)}).*true' }}"
    verdict = verdict_of(
        tmp_path,
        f'[[rule]]\nname = "tried"\ndecision = "deny"\nreason = "r"\n{rule}\n',
        call_of("mcp__git__push", how=dict.fromkeys(names, 1)),
    )
    assert "take too long to compare" in verdict.reason


def test_texts_of_arguments() -> None:
    assert [argument_text(value) for value in ("a", None, True, 1.5, {"ä": [None]}, object)] == [
        *("a", None, "true", "1.5", '{"ä":[null]}', f'"{object}"')
    ]


PREFIX = 'command_prefix = ["git push", "ls"]'


LINES = {
    (True, True): [
        "git push", "git push origin main", "  git   push", "git 'push'", "ls", "ls 2>&1 | tail -3", "ls 'a;b'",
        "cd x && git push", "g'i't pu\\sh", "git \\\n push", "timeout 5 git push", "nice -n 3 timeout 5 git push",
        "ls && git push", "ls > /dev/null",
    ],
    (False, True): [
        "git -C x push", "ls; rm x", "ls && rm x", "ls | sh", "ls & rm x", "ls\nrm x", "ls $(rm x)", "ls `rm x`",
        "ls > x", "ls >> x", "ls < x", "ls <(rm x)", "ls $HOME", "ls 'a", "(ls)", "{ ls; }",
        "cd x && git push && touch y", 'echo "$(git push)"', "A=b git push", "timeout -x 5 git -C y push", "foo ./ls",
        "/usr/bin/l? x", "l* x", "nohup -n git push", "X=push; git $X", "ls() { rm x; }; ls", "PATH=.; ls",
        "ls <<< $(git push)", "git push\necho '", "/usr/bin/git push", "if ls; then x; fi", "bash -c 'git push'",
        "find . | xargs ls", "git pushes",
    ],
    (False, False): [
        "git pull", "git", "lsof", "echo git push", "cat x", "git commit -m 'git push'", "rm x\necho '", "",
    ],
}  # fmt: skip
"""By whether a rule that allows the prefixes matches a line, and whether one that denies or asks does."""


@pytest.mark.parametrize(("line", "matched"), [(line, key) for key, lines in LINES.items() for line in lines])
def test_a_line_is_allowed_as_all_its_commands_and_denied_for_each(
    tmp_path: Path, line: str, matched: tuple[bool, bool]
) -> None:
    call = call_of("bash", command=line or " ")
    allowed, asked, denied = (matches(tmp_path, PREFIX, call, decision) for decision in ("allow", "ask", "deny"))
    assert ((allowed, denied), asked) == (matched, denied)


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
