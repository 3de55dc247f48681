"""The class of single lines, and what is known about their commands."""

from __future__ import annotations

import pytest

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell import SubCommand, classify, classify_line


async def test_a_line_has_the_class_of_its_strictest_command() -> None:
    found = await classify("cat a.txt | wc -l && touch x")
    assert found.decision is Decision.ASK
    assert {each.words: each.decision for each in found.commands} == {
        ("cat", "a.txt"): Decision.ALLOW,
        ("wc", "-l"): Decision.ALLOW,
        ("touch", "x"): Decision.ASK,
    }


@pytest.mark.parametrize("line", ["sudo id", "ls; sudo id", "timeout 5 sudo id", "sh -c 'ls; sudo id'", "a $(sudo id)"])
def test_a_forbidden_program_is_denied_wherever_it_stands(line: str) -> None:
    found = classify_line(line)
    assert found.decision is Decision.DENY
    assert SubCommand(("sudo", "id"), Decision.DENY, "sudo gets the rights of another user") in found.commands
