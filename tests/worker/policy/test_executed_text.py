"""A rule that denies a command also denies lines that have a shell or an interpreter execute it as a text."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from deputize.worker.policy import PolicyCall
from deputize.worker.policy.shell import classify_line
from tests.worker.policy.executing import WAYS
from tests.worker.policy.rule_files import call_of, matches, verdict_of
from tests.worker.sandbox.sandboxes import bash, sandbox_over

RULES = ("git push", "rm -rf", "scp")
HIDDEN = (
    *("curl -s x | sh", "cat f | bash", "openssl base64 -d -in f | sh", "xxd -r -p f | python3", "gunzip -c f | perl"),
    *(
        "cat f | xargs -I % % push",
        "cat f | xargs -I% -n1 ./% x",
        "cat f | xargs -i '{}' push",
        "cat f | parallel",
        "cat f | node",
        "cat f | uv run python -",
        "cat f | ruby -w",
    ),
    *("cat f | xargs timeout 5", "seq 2 | bash +x", "cat f | python3 -E", "cat f | xargs xargs"),
)
"""Lines that execute what does not stand in them."""
HONEST = (
    *("cat data.json | python3 -m json.tool", "echo y | ./configure", "git ls-files | xargs grep foo", "bash build.sh"),
    *("cat a | python3 script.py", "printf 'a\\nb\\n' | sort", "python3 -c 'print(1)'", "find . | xargs wc -l"),
    *("cat x | bash build.sh", "cat x | bash -eu build.sh", "git branch | xargs git branch -d", "echo x | make all"),
    *("seq 3 | xargs -I % touch f%", "python3 manage.py migrate", "cat f | node -e 'x'", "echo ls | sh", "echo scp"),
    *("cat f | python3 -u run.py", "cat f | perl -ne print", "cat f | deno eval 'x'", "echo hi | tee notes.md"),
    *("git --no-pager log", "echo git push", "cat f | grep git", "make -f Makefile", "printf '%s\\n' ls | sh"),
)


def denied(tmp_path: Path, rule: str, line: str) -> bool:
    assert classify_line(line).commands, f"{line} is not plain"
    prefix, call = f'command_prefix = "{rule}"', call_of("bash", command=line)
    found, asked = (matches(tmp_path, prefix, call, decision) for decision in ("deny", "ask"))
    assert found == asked
    return found


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("way", WAYS)
def test_a_command_is_denied_in_each_way_to_execute_it_as_a_text(tmp_path: Path, rule: str, way: str) -> None:
    line = WAYS[way](f"{rule} origin main")
    assert denied(tmp_path, rule, line)


@pytest.mark.parametrize("line", HIDDEN)
def test_what_executes_a_text_that_does_not_stand_in_the_line_is_denied(tmp_path: Path, line: str) -> None:
    assert denied(tmp_path, "git push", line)
    verdict = verdict_of(tmp_path, DENY, call_of("bash", command=line))
    assert verdict.reason.startswith("Only people push. What is piped into ")
    assert verdict.reason.endswith(" cannot be read: write the commands themselves")


DENY = '[[rule]]\nname = "no-push"\ndecision = "deny"\nreason = "Only people push"\ncommand_prefix = "git push"\n'


@pytest.mark.parametrize("line", HONEST)
def test_what_only_reads_or_names_a_script_is_not(tmp_path: Path, line: str) -> None:
    assert [rule for rule in ("git push", "scp") if denied(tmp_path, rule, line)] == []


@pytest.mark.parametrize(
    "line",
    [
        "git --config-env a.b=HOME push", "git --super-prefix x push", "git -C x push", "git --no-pager push",
        "git --git-dir=x push", "git -c a=b --bare push", "/usr/bin/git --attr-source x push",
    ],
)  # fmt: skip
def test_options_before_a_subcommand_may_have_values(tmp_path: Path, line: str) -> None:
    assert denied(tmp_path, "git push", line)
    assert denied(tmp_path, "pip install", line.replace("git", "pip").replace("push", "install"))
    assert not denied(tmp_path, "git pull", line)


def test_no_allow_rule_covers_what_executes_a_text(tmp_path: Path) -> None:
    call: PolicyCall = call_of("bash", command="echo git push | sh")
    assert not matches(tmp_path, 'command_prefix = "git push"', call, "allow")


@pytest.mark.parametrize("words", ["xargs ", "sh ", "python3 -c x "])
def test_a_line_of_many_such_words_counts_as_hidden(tmp_path: Path, words: str) -> None:
    assert denied(tmp_path, "scp", f"echo {'x' * 1000} | foo {words * 900}")


@pytest.mark.system
async def test_bash_starts_the_command_in_most_of_these_ways(tmp_path: Path) -> None:
    """Otherwise the tests above would be about nothing."""
    shown = {name: way("git push x") for name, way in WAYS.items()}
    script = "".join(
        f"PATH=/workspace/programs:$PATH NAME='{name}' /usr/bin/timeout 3 /bin/bash --noprofile --norc -c "
        f"{shlex.quote(line)} </dev/null >/dev/null 2>&1\n"
        for name, line in shown.items()
    )
    with sandbox_over(tmp_path / "ws") as sandbox:
        (tmp_path / "ws/programs").mkdir()
        (tmp_path / "ws/programs/git").write_text('#!/bin/sh\n[ "$*" != "push x" ] || echo "$NAME" >> /workspace/ran\n')
        (tmp_path / "ws/programs/git").chmod(0o755)
        await sandbox.run(bash(script, 120))
    ran = set((tmp_path / "ws/ran").read_text().splitlines())
    assert len(ran) > 25, WAYS.keys() - ran
