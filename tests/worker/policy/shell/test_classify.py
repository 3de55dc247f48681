"""What is found out about a line besides its class, and what becomes of one that cannot be parsed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from deputize.worker.policy.decision import Decision
from deputize.worker.policy.shell import Classified, SubCommand, classify_line
from deputize.worker.policy.shell.classification import Classifier
from deputize.worker.policy.shell.parser import Node, ParseFailure, Parser, installed_parser
from deputize.worker.policy.shell.started import AHEAD, MAX_TEXT
from tests.leaks import descendants

SUDO = SubCommand(("sudo", "id"), Decision.DENY, "sudo gets the rights of another user")


def classes(line: str) -> dict[str, str]:
    """The class of each command of a line."""
    return {" ".join(each.words): str(each.decision) for each in classify_line(line).commands}


@pytest.mark.requirement("S001-042", "S002-005", "S002-069")
def test_every_command_of_a_line_has_its_class_and_the_strictest_counts() -> None:
    found = classify_line("cat a.txt | wc -l && touch x")
    assert (found.decision, found.reason) == (Decision.ASK, "touch is not known to only read")
    assert [(each.words, each.decision) for each in found.commands] == [
        (("cat", "a.txt"), Decision.ALLOW),
        (("wc", "-l"), Decision.ALLOW),
        (("touch", "x"), Decision.ASK),
    ]


@pytest.mark.requirement("S002-064")
@pytest.mark.parametrize(
    "program", ["cat a", "ls", "pwd", "grep x a", "find .", "head a", "tail a", "wc a", "echo a", "which a"]
)
def test_programs_that_only_read_are_allowed(program: str) -> None:
    assert classify_line(program).decision is Decision.ALLOW


@pytest.mark.requirement("S002-065")
@pytest.mark.parametrize(
    "command", ["status", "log", "diff", "branch", "show HEAD", "blame a", "remote -v", "stash list"]
)
def test_git_commands_that_only_read_are_allowed(command: str) -> None:
    assert classify_line(f"git {command}").decision is Decision.ALLOW


@pytest.mark.requirement("S002-066")
@pytest.mark.parametrize(
    "program", ["rm", "mv", "cp", "mkdir", "chmod", "rmdir", "touch", "ln", "chown", "tee", "kill"]
)
def test_programs_that_change_something_need_approval(program: str) -> None:
    found = classify_line(f"{program} a b")
    assert (found.decision, found.commands[0].pattern) == (Decision.ASK, (program,))


@pytest.mark.requirement("S002-067")
@pytest.mark.parametrize(
    "command", ["add a", "commit -m x", "push", "merge a", "pull", "rebase a", "reset", "checkout a", "clean"]
)
def test_git_commands_that_change_something_need_approval(command: str) -> None:
    found = classify_line(f"git {command}")
    assert (found.decision, found.commands[0].pattern) == (Decision.ASK, ("git", command.split()[0]))


@pytest.mark.requirement("S001-033", "S002-068")
@pytest.mark.parametrize(
    "program", ["sudo", "su", "shutdown", "reboot", "mkfs", "mkfs.ext4", "fdisk", "halt", "passwd", "mount"]
)
def test_forbidden_programs_are_denied_and_never_remembered(program: str) -> None:
    found = classify_line(f"ls && timeout 5 {program} x")
    assert found.decision is Decision.DENY
    assert [each.pattern for each in found.commands if each.decision is Decision.DENY] == [()]


def test_what_launchers_and_shells_start_are_commands_of_their_own() -> None:
    assert classes("timeout 5 nice git push") == {
        "timeout 5 nice git push": "allow",
        "nice git push": "allow",
        "git push": "ask",
    }
    assert classes("sh -c 'ls; touch x'") == {"sh -c ls; touch x": "allow", "ls": "allow", "touch x": "ask"}
    assert classes("find . -exec rm {} +") == {"find . -exec rm {} +": "ask", "rm {}": "ask"}
    assert SUDO in classify_line("env A=1 bash -c 'ls; sudo id'").commands


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("git push --force", ("git", "push")),
        ("npm test -- -x", ("npm", "test")),
        ("make all", ("make", "all")),
        ("python3 x.py", ("python3", "x.py")),
        ("touch a b", ("touch",)),
        ("npm --version", ("npm", "--version")),
        ("git -C x push", ()),
        ("$X push", ()),
        ("python3 $X", ()),
    ],
)
def test_an_answer_can_be_remembered_for_the_beginning_of_a_command(line: str, pattern: tuple[str, ...]) -> None:
    assert classify_line(line).commands[0].pattern == pattern


def test_what_a_line_does_besides_its_commands_is_covered_by_none_of_them() -> None:
    def covered(line: str) -> bool:
        return classify_line(line).covered(lambda command: command.words[0] == "git")

    assert covered("git push && git pull")
    assert not any(map(covered, ["git push; ls", "git push > x", "A=1 git push", "f() { git push; }", "A=1", "#", "("]))
    assert classify_line("git log > x").effects == ("writes x",)


def test_an_expansion_is_shown_as_such() -> None:
    assert next(iter(classes("rm $X ${Y:-a} $(ls) <(ls) $((1)) ~ {1..2}"))) == "rm $X ${Y…} $(…) <(…) $((…)) ~ {1..2}"


@pytest.mark.parametrize("character", ["\0", "\r", "\x1b", "\x7f", "\x85", "\udc80"])
def test_a_line_with_a_control_character_is_refused_before_it_is_parsed(character: str) -> None:
    found = Classifier(_never).classify(f"ls{character}")
    assert (found.decision, found.malformed, found.commands) == (Decision.DENY, True, ())
    assert f"U+{ord(character):04X}" in found.reason


def _never(line: str) -> list[Node]:
    raise AssertionError(line)


@pytest.mark.parametrize("line", ["", " ", "# nothing", "\n"])
def test_a_line_without_a_command_needs_approval(line: str) -> None:
    assert classify_line(line) == Classified(
        Decision.ASK, "there is no command in it", effects=("there is no command in it",)
    )


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("ls )(", Decision.ASK),
        ('ls "unclosed', Decision.ASK),
        ("ls\necho 'unclosed", Decision.ASK),
        ("sudo id )(", Decision.DENY),
        ("echo $((sudo id) )", Decision.DENY),
        ("sudo id\necho 'unclosed", Decision.DENY),
        ("$'\\x73udo' id\necho 'unclosed", Decision.DENY),
        ("bash -c 'ls )('", Decision.ASK),
        ("bash -c 'sudo id )('", Decision.DENY),
    ],
)
def test_a_line_that_cannot_be_parsed_needs_approval_unless_a_piece_is_forbidden(line: str, decision: Decision) -> None:
    found = classify_line(line)
    assert (found.decision, bool(found.unread)) == (decision, True)


def test_without_a_parser_nothing_but_plain_commands_is_allowed(tmp_path: Path) -> None:
    broken, slow = tmp_path / "shfmt", tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 1000\n")
    slow.chmod(0o755)
    for parser, why in (
        (Parser(None), "shfmt is missing"),
        (Parser(str(broken)), "does not start"),
        (Parser("/bin/false"), "shfmt failed"),
        (Parser("/bin/cat"), "shfmt failed"),
        (Parser(str(slow), seconds=0.1), "takes longer"),
    ):
        classifier = Classifier(parser.parse)
        found = classifier.classify("ls | wc -l")
        assert (found.decision, classifier.classify("ls; sudo id").decision) == (Decision.ASK, Decision.DENY), why
        assert why in found.reason
        assert classifier.classify("ls -la").decision is Decision.ALLOW


def test_a_program_that_does_not_answer_is_killed(tmp_path: Path) -> None:
    slow = tmp_path / "shfmt"
    slow.write_text("#!/bin/sh\nexec sleep 1000\n")
    slow.chmod(0o755)
    with pytest.raises(ParseFailure, match=r"takes longer than 0\.1 s"):
        Parser(str(slow), seconds=0.1).parse("ls | wc")


def test_a_tree_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(ParseFailure, match="too large or too deeply nested"):
        installed_parser().parse("echo " + "$(" * 700 + "ls" + ")" * 700)
    deep = tmp_path / "shfmt"
    deep.write_text("#!/bin/sh\nprintf '%0100000d' 0 | tr 0 '['\n")
    deep.chmod(0o755)
    with pytest.raises(ParseFailure, match="too large or too deeply nested"):
        Parser(str(deep)).parse("ls | wc")


def test_what_the_parser_writes_may_be_anything(tmp_path: Path) -> None:
    broken = tmp_path / "shfmt"
    broken.write_text("#!/bin/sh\necho not JSON\n")
    broken.chmod(0o755)
    with pytest.raises(ParseFailure, match="shfmt failed"):
        Parser(str(broken)).parse("ls | wc")


def test_a_word_that_goes_on_in_the_next_line_is_one_word() -> None:
    assert classes("ec\\\nho a | su\\\ndo id")["sudo id"] == "deny"


def test_a_forbidden_program_is_found_behind_any_number_of_others() -> None:
    for line in (
        "ls; " * 20_000 + "sudo id",
        "env " * 1_000 + "sudo id",
        "timeout -x " * 1_000 + "sudo id",
        "$(" * 5_000 + "sudo id" + ")" * 5_000,
        "{a,b}" * 5_000 + "; sudo id",
        "{sudo,}" + "{,}" * 2_000 + " id",
        " ".join(f"$(bash -c 'echo {n} $(ls)')" for n in range(200)) + "; eval 'sudo id'",
        " ".join(f"$(bash -c 'echo {n} $(ls)')" for n in range(200)) + "; bash -c 'echo $(sudo id)'",
    ):
        assert classify_line(line).decision is Decision.DENY


def test_while_a_worker_wants_it_the_next_process_waits_for_its_line() -> None:
    parser = installed_parser()
    assert parser.program is not None
    before = descendants()
    with AHEAD.wanted(), AHEAD.wanted():
        for _ in range(2):
            assert parser.parse("ls | wc") == parser.parse("ls   |   wc")
            (waiting,) = descendants() - before
            os.kill(waiting, signal.SIGKILL)  # it ends for whatever reason
            os.waitid(os.P_PID, waiting, os.WEXITED | os.WNOWAIT)
            with pytest.raises(ParseFailure, match="not valid bash"):
                parser.parse("ls )(")
        assert len(parser.parse(f"ls {'a' * MAX_TEXT} | wc")) == 1
    assert descendants() == before
