"""Which lines are plain, what their commands are, and what becomes of all others."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from deputize.worker.policy.shell import CommandLine, Decision, SubCommand, classify_line, strictest
from deputize.worker.policy.shell.plain_line import MAX_CHARS
from tests.worker.policy.shell.bash_grammar import THAT_CHANGED_FILES


def classes(line: str) -> dict[str, str]:
    """The class of each command of a line."""
    return {" ".join(each.words): str(each.decision) for each in classify_line(line).commands}


def words(line: str) -> list[tuple[str, ...]]:
    return [each.words for each in classify_line(line).commands]


@pytest.mark.requirement("S001-042", "S002-005", "S002-069")
def test_every_command_of_a_line_has_its_class_and_the_strictest_counts() -> None:
    found = classify_line("cat a.txt | wc -l && touch x")
    assert (found.decision, found.reason) == (Decision.ASK, "touch may change something")
    assert classes("cat a.txt | wc -l && touch x") == {"cat a.txt": "allow", "wc -l": "allow", "touch x": "ask"}


@pytest.mark.requirement("S002-064")
@pytest.mark.parametrize(
    "program", ["cat a", "ls", "pwd", "grep x a", "find .", "head a", "tail a", "wc a", "echo a", "which a"]
)
def test_programs_that_only_read_are_allowed(program: str) -> None:
    assert classify_line(program).decision is Decision.ALLOW


@pytest.mark.parametrize(
    "line",
    [
        *("hexdump -f/etc/passwd a", "hexdump -f f a", "hexdump -Cf/etc/passwd a"),  # the format comes from a file
        *("tar tf host:a", "tar -tzf user@host:a", "tar tf a b:c"),  # a colon names another machine
        *("strings @FILE", "strings a @f", "strings -a ./a @f", "strings '@f'"),  # further arguments come from a file
    ],
)
def test_a_program_that_takes_orders_from_its_operands_needs_approval(line: str) -> None:
    assert classify_line(line).decision is Decision.ASK


@pytest.mark.parametrize("line", ["hexdump -C a", "tar tf a.tar", "strings -n4 a"])
def test_the_same_programs_may_read_other_operands(line: str) -> None:
    assert classify_line(line).decision is Decision.ALLOW


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
    assert classify_line(f"{program} a b").decision is Decision.ASK


@pytest.mark.requirement("S002-067")
@pytest.mark.parametrize(
    "command", ["add a", "commit -m x", "push", "merge a", "pull", "rebase a", "reset", "checkout a", "clean"]
)
def test_git_commands_that_change_something_need_approval(command: str) -> None:
    assert classify_line(f"git {command}").decision is Decision.ASK


@pytest.mark.requirement("S001-033", "S002-068")
@pytest.mark.parametrize(
    "program",
    ["sudo", "su", "shutdown", "reboot", "mkfs", "mkfs.ext4", "fdisk", "halt", "passwd", "mount", "unshare", "nsenter"],
)
@pytest.mark.parametrize(
    "line", ["ls && timeout 5 {} x", "/usr/sbin/{} x", "echo $({} x)", "X={}; $X x", "ls # \\\n{} x"]
)
def test_forbidden_programs_are_denied_and_never_remembered(program: str, line: str) -> None:
    found = classify_line(line.format(program))
    assert found.decision is Decision.DENY
    assert [each.pattern for each in found.commands if each.decision is Decision.DENY] == [()] * bool(found.commands)


@pytest.mark.parametrize(
    "line",
    [
        "ls -la | head", "git log --oneline -5", "grep -rn x src | wc -l", "cat a b", "find . -name '*.py'",
        "sed -n 1,20p f", "git diff HEAD~1 -- f", "cd src && ls", "ls src/*.py", "wc -l ./*.py", "ls -- *.py",
        "cat f 2>/dev/null || true", "git show HEAD:src/a.py", "git show stash@{0}", 'grep "^x$" f', "ls\ncat f\n",
        "grep x f |\n  head -3", "ls -la \\\n  src", "timeout 5 git status", "tail -n +5 f", "find . ! -name x",
        "ls # what there is", "printf '%s\\n' a", "sort -k2 -t, f", "rg -n --glob '*.py' x src", "npm list",
        "npm ls react --depth=0", "npm ls -g --depth 1 | head", "npm ll --all --json", "npm why @types/node -w web",
    ],
)  # fmt: skip
def test_what_agents_read_with_needs_no_permission(line: str) -> None:
    assert classify_line(line).decision is Decision.ALLOW


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "has no command"),
        ("# nothing", "has no command"),
        ("echo $x", "has an expansion"),
        ("echo `ls`", "has an expansion"),
        ('echo "$x"', "has an expansion in quotes, or open quotes"),
        ("echo 'x", "has an expansion in quotes, or open quotes"),
        ("(ls)", "has parentheses"),
        ("f() { ls; }", "has parentheses"),
        ("ls > x", "has a redirection"),
        ("ls >/dev/nullx", "has a redirection"),
        ("cat <<E\nx\nE", "has a redirection"),
        ("ls {a,b}", "has braces"),
        ("ls ~", "has a tilde"),
        ("ls a=~", "has a tilde"),
        ("ls\\\n-l", "has an escaped line end"),
        ("ls \\ #", "has a # after a blank"),
        ("[[ a ]]", "has [[ or an open bracket"),
        ("ls &", "has the operator &"),
        ("ls |& cat", "has the operator |&"),
        ("case x in x) ls;; esac", "has the keyword case"),
        ("ls; ; ls", "has a redirection or an operator without a command"),
        (">/dev/null", "has a redirection or an operator without a command"),
        ("ls &&", "ends with &&"),
        ("ls |\n# x", "ends with |"),
        ("if ls\nthen cat f\nfi", "has the keyword if"),
        ("A=1 ls", "sets a variable"),
        ("a[0]=1", "sets a variable"),
        ("l? x", "has a pattern in the place of a program"),
        ("ls *", "has the pattern *, which may become an option: write ./*"),
        ("sort -k -- *", "git"),
        ("ls # \\\ncat f", "has a comment with an escaped line end"),
        ("bash -c 'ls'", "has bash, which runs a text"),
        ("timeout 5 sh -ec ls", "has sh, which runs a text"),
        ("eval ls", "has eval, which runs a text"),
        ("echo \u202e", "has invisible characters, which may hide what it does"),
        ("ls " + "x" * MAX_CHARS, f"is longer than {MAX_CHARS} characters"),
    ],
)
def test_a_line_that_is_not_plain_asks_and_is_covered_by_nothing(line: str, why: str) -> None:
    found = classify_line(line)
    if why == "git":  # plain, but the end of the options may be a value
        assert (found.decision, bool(found.commands)) == (Decision.ASK, True)
        return
    assert (found.decision, found.why, found.commands, found.text) == (Decision.ASK, why, (), line)
    assert found.effects == (f"{why}, so that no rule and no remembered answer covers it",)
    assert not found.covered(lambda command: True)


def test_words_are_those_of_bash() -> None:
    assert words("""ec'h'o "a\\$b\\x" c\\ d '#' x#y e=1 a]""") == [("echo", "a$b\\x", "c d", "#", "x#y", "e=1", "a]")]
    assert words("git commit -m 'two\nlines'") == [("git", "commit", "-m", "two\nlines")]
    assert words("ls 2>&1 >/dev/null&>/dev/null;cat 2") == [("ls",), ("cat", "2")]
    assert words("find . -exec rm {} \\;") == [("find", ".", "-exec", "rm", "{}", ";")]


@pytest.mark.parametrize("character", ["\0", "\r", "\x1b", "\x7f", "\x85", "\udc80"])
def test_a_line_with_a_control_character_is_refused(character: str) -> None:
    found = classify_line(f"ls{character}")
    assert (found.decision, found.malformed, found.commands) == (Decision.DENY, True, ())
    assert f"U+{ord(character):04X}" in found.reason
    assert found.effects == ()


def test_line_ends_of_windows_are_line_ends() -> None:
    assert classify_line("ls\r\ncat f\r\n") == classify_line("ls\ncat f\n")
    assert classify_line("ls # \\\r\nsudo id").decision is Decision.DENY


@pytest.mark.parametrize("line", THAT_CHANGED_FILES)
def test_a_line_that_can_change_files_asks(line: str) -> None:
    assert classify_line(line).decision is Decision.ASK


@pytest.mark.parametrize(
    "line",
    [
        "ls # x \\\n{}", 'echo "${{x-\'$({})\'}}"', 'echo "${{x:-\'$({})\'}}"', 'echo "${{x+\'`{}`\'}}"',
        "cat <<E\n${{x-'$({})'}}\nE", "cat <<E\n\\\nE\n{}\nE", "echo \"${{x-$'$({})'}}\"",
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["sudo id", "mkfs /dev/x", "rm -rf /", "unshare -r ls"])
def test_spellings_that_parsers_read_otherwise_than_bash_hide_nothing(line: str, command: str) -> None:
    assert classify_line(line.format(command)).decision is Decision.DENY
    assert classify_line(line.format("rm x")).covered(lambda _: True) is False


@pytest.mark.parametrize(
    "line",
    [
        "a=b; " + "a=$a$a$a; " * 28 + "$a",
        "a=b; for i in 1 2 3 4 5 6; do a=${a:-$a}$a$a; done; $a",
        "ls; " * 4_000 + "sudo id",
        "env " * 2_000 + "sudo id",
        "timeout -x " * 1_000 + "sudo id",
        "$(" * 2_000 + "sudo id" + ")" * 2_000,
        "{a,b}" * 2_000 + "; sudo id",
        "f(){ :;}; " * 2_000 + "sudo id",
        "a" * 20_000 + " " * 20_000 + "; sudo id",
        "x*;" * 5_000 + "sudo id",
        "${" * 10_000 + "; sudo id",
    ],
    ids=range(11),
)
def test_no_line_takes_much_memory_or_time(line: str) -> None:
    begin = time.process_time()
    tracemalloc.start()
    found = classify_line(line)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.decision is (Decision.DENY if "sudo" in line else Decision.ASK)
    assert (peak < 100 * 2**20, time.process_time() - begin < 20) == (True, True)


def test_what_launchers_start_are_commands_of_their_own() -> None:
    assert classes("timeout 5 nice -n 3 git push") == {
        "timeout 5 nice -n 3 git push": "allow",
        "nice -n 3 git push": "allow",
        "git push": "ask",
    }
    assert classes("timeout -s KILL 5 ls") == {"timeout -s KILL 5 ls": "allow", "ls": "allow"}
    assert classes("timeout --weird 5 ls") == {"timeout --weird 5 ls": "ask"}
    assert classes("env A=1 ls") == {"env A=1 ls": "ask"}
    assert classes("timeout 5") == {"timeout 5": "ask"}


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("git push", ("git", "push", "*")),
        ("git push origin topic", ("git", "push", "origin", "*")),
        ("git push -u origin topic", ("git", "push", "-u", "origin", "*")),
        ("git pull origin", ("git", "pull", "origin", "*")),
        ("git fetch evil main", ("git", "fetch", "evil", "*")),
        ("git push --force origin main", ("git", "push", "--force", "origin", "main")),
        ("git --no-pager commit -qm x", ("git", "commit", "-m", "-q", "*")),
        ("git branch new", ("git", "branch", "*")),
        ("git fetch ../evil", ("git", "fetch", "../evil")),
        ("npm test", ("npm", "test", "*")),
        ("npm test -- -x", ("npm", "test", "--", "-x")),
        ("make all", ("make", "all")),
        ("python3 x.py", ("python3", "x.py")),
        ("touch a b", ("touch", "*")),
        ("touch .git/a", ("touch", ".git/a")),
        ("touch a sub/.git/config", ("touch", "a", "sub/.git/config")),
        ("touch ../a", ("touch", "../a")),
        ("rg -z x", ("rg", "-z", "*")),
        ("rg --pre ./x x", ("rg", "--pre", "./x", "x")),
        ("sort -o out f", ("sort", "-o", "out", "f")),
        ("sort --output=.git/config f", ("sort", "--output=.git/config", "f")),
        ("sort -ro out f", ("sort", "-ro", "out", "f")),
        ("sort -o /etc/x f", ("sort", "-o", "/etc/x", "f")),
        ("cat /etc/passwd", ("cat", "/etc/passwd")),
        ("echo x | python3", ()),
        ("ls | xargs rm", ()),
        ("rm src/*", ()),
        ("cd sub && git status", ()),
        ("git -C x push", ("git", "-C", "x", "push")),
    ],
)
def test_an_answer_is_remembered_for_the_options_and_the_kind_of_operands_that_were_seen(
    line: str, pattern: tuple[str, ...]
) -> None:
    assert classify_line(line).asking[0].pattern == pattern


@pytest.mark.parametrize("name", ["a[0]", "a[@]", "a[i+1]", "!a", "!a[0]", "a"])
@pytest.mark.parametrize("operator", [":-", "-", ":=", ":+", "+", ":?"])
def test_a_default_of_a_variable_may_be_a_forbidden_program(name: str, operator: str) -> None:
    assert classify_line(f"${{{name}{operator}sudo}} id").decision is Decision.DENY


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("npm init", Decision.ASK),
        ("npm ls --prefix /x", Decision.ASK),
        ("npm list --userconfig=a", Decision.ASK),
        ("for f in a b; do git init $f; done", Decision.ASK),
        ("cat > f.py <<'E'\nsuper().__init__()\nop = 3\nadd_parser(\"init\")\nif op in x: pass\nE", Decision.ASK),
        ('echo \'{"init": 1, "mount": "x"}\' > f.json', Decision.ASK),
        ("python3 -c 'print(\"sudo id\")'", Decision.ASK),
        ("git commit -m 'sudo id'", Decision.ASK),
        ('rm -rf "$X/"', Decision.ASK),
        ("dd if=/dev/sda of=x", Decision.ASK),
        ("ls; dd of=/dev/sda", Decision.DENY),
        ("echo x | base64 -d | sh", Decision.ASK),
        ("echo %% $x | base64 -d | sh", Decision.ASK),
        ("cd / && rm -rf ./*", Decision.DENY),
        ("touch /dev/sda", Decision.DENY),
        ("mv x /dev/sda", Decision.DENY),
        ("systemctl status x", Decision.ASK),
    ],
)
def test_names_of_forbidden_programs_count_where_they_can_be_programs(line: str, decision: Decision) -> None:
    assert classify_line(line).decision is decision


def test_the_error_of_a_denied_line_shows_how_to_write_it() -> None:
    found = classify_line("for i in 1; do sudo id; done")
    assert found.reason == (
        "sudo gets the rights of another user, and the line has the keyword for: where a line is not plain, each word "
        "of it counts; write it plainly: literal words joined by ; && || |, and files with the tools for files"
    )
    assert classify_line("sudo id") == CommandLine(
        Decision.DENY,
        "sudo gets the rights of another user",
        (SubCommand(("sudo", "id"), Decision.DENY, "sudo gets the rights of another user"),),
    )


FOLDER = Path(__file__).parents[3] / "corpus"
ROWS: list[dict[str, Any]] = [
    json.loads(row)
    for name in ("commands.jsonl", "own_commands.jsonl")
    for row in (FOLDER / name).read_text("utf-8").splitlines()
]


@pytest.mark.requirement("S001-033", "S001-042", "S002-069")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_collected_line_has_its_class_or_a_stricter_one_where_it_is_not_plain(row: dict[str, Any]) -> None:
    line, expected = classify_line(row["command"]), Decision(row["class"])
    found = line.decision
    assert strictest([found, expected]) is found
    assert (found is not expected) == (row.get("plain", True) is False)
    assert found is expected or not line.commands


def test_the_collection_has_lines_of_every_class() -> None:
    assert {row["class"] for row in ROWS} == set(Decision)
    assert len(ROWS) > 600


@pytest.mark.parametrize(
    "line",
    [
        "s[u]do id",
        "*udo id",
        "[s]udo id $x",
        "/usr/bin/sud[o] id $x",
        "f() { f | f & }; f",
        ":(){ :|:& };:",
        "f() ( f & f ); f",
        "f() { $FUNCNAME & }; f",
    ],
)
def test_patterns_of_forbidden_names_and_functions_that_start_themselves_are_denied(line: str) -> None:
    assert classify_line(line).decision is Decision.DENY


@pytest.mark.parametrize(
    "line", ["f() { echo a; }; f | cat", "ls [sudo", "echo $a[0] list[int]", "x[[[[ $a", "env " * 30]
)
def test_what_only_looks_like_these_is_asked_about(line: str) -> None:
    assert classify_line(line).decision is Decision.ASK
