"""Prefixes of commands: a line allows only what can be read off it, and is denied for every piece it may run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.policy.rule_files import call_of, matches

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
        ("git -C x push", False, False),
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
        ("ls <(rm x)", False, True),
        ("ls $HOME", False, True),
        ("ls 'a;b'", False, True),
        ("ls 'a", False, True),
        ("(ls)", False, True),
        ("{ ls; }", False, True),
        ("cd x && git push", False, True),
        ('echo "$(git push)"', False, True),
        ("g'i't pu\\sh", True, True),
        ("git \\\n push", False, True),
        ("A=b git push", False, True),
        ("nohup -n git push", False, True),
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


def test_a_long_line_takes_no_long_time_and_allows_nothing(tmp_path: Path) -> None:
    for line, denied in (("ls " + "x" * 10_000, True), ("env " * 19_000 + "ls", True), ("env " * 19_000, False)):
        call = call_of("bash", command=line)
        assert [matches(tmp_path, PREFIX, call, decision) for decision in ("allow", "deny")] == [False, denied]


def test_a_tool_without_a_command_has_no_prefix(tmp_path: Path) -> None:
    assert not matches(tmp_path, PREFIX, call_of("read_file", path="ls"))
