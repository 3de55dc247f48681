"""Prefixes of commands: a line is allowed where all of its commands match, and denied for every one it may run."""

from __future__ import annotations

import time
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
