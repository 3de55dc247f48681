"""The evidence in pull requests: what it states, and that untrusted text stays text."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult
from deputize.shared.facts import Check, FileChange, Verification
from deputize.shared.git.evidence import RunNotes, evidence_of, executed_by_hosts
from deputize.shared.ids import new_id

HOSTILE = [
    "@octo/team and mail@example.io",
    "fixes #1, closes o/r#2, resolves GH-3, closes PROJ-4, fixes https://github.com/o/r/issues/5",
    "![x](https://evil.example/a.png) [a](b)",
    '<img src="https://evil.example/a.png"><!-- <details></code></pre>',
    "a | b \\| c \\\\| d",
    "`a` ``` ~~~ `` b",
    "a\r\n| x | y |\n---\n# Title\n/merge\n> quote",
    "\x1b[31m\x00\u202ered\u200b",
    "_a_ *b* ~c~ &amp; &#64;octo $x$",
    'See !12, ~bug, ~"a bug", %v1, $7, &3, ^alert#4, *iteration:"x", [vulnerability:5]',
    "www.evil.example [skip ci] ***NO_CI***",
    "Co-authored-by: A <a@b.c>\nskip-checks: true",
    "é" * 100_000,
    "\U0001f600\n" * 50_000,
]
NOTHING = RunNotes()
LIVE = re.compile(r"[@`|*_~!\[\]\\\"$]|#(?!x[0-9a-f]+;)|<|>|://|www\.|\bgh-\d|[^\x0a\x20-\x7e\w\u200b]", re.IGNORECASE)
OURS = re.compile(r"^\|---.*|^> |^## |</?code>|^\*\*Verdict: \w+\*\*|Delegation dlg_| ?\| ?", re.MULTILINE)


def result(summary: str = "", **found: Any) -> ToolAgentResult:
    verification = Verification(**found)
    reason = TerminationReason.COMPLETED
    return ToolAgentResult(
        delegation_id=new_id(),
        status=Status.SUCCEEDED,
        termination_reason=reason,
        summary=summary,
        verification=verification,
        denied_call_count=2,
    )


def checked(run: str, **item: Any) -> Check:
    given = {"kind": "command", "run": run} | item
    return Check(item=given, outcome="evidence", base="red", candidate="green", canary="red")


def evidence(ended: ToolAgentResult, *paths: str, notes: RunNotes = NOTHING) -> str:
    changes = [FileChange(path=path, change="modified", added_lines=3, removed_lines=1) for path in paths]
    return evidence_of(ended, changes, notes, lambda text: text.replace("secret_1", "***"))


def test_it_states_what_the_worker_found_above_the_line() -> None:
    ended = result("All done", verdict="verified", checks=[checked("pytest -q")], restored=["tests/a.py"])
    above, _, below = evidence(ended, "app.py").partition("\n---\n")
    assert "**Verdict: verified**" in above
    assert "| <code>pytest -q</code> | evidence | red | green | red |" in above
    assert "- <code>tests/a.py</code>" in above
    assert "- <code>app.py</code> modified, +3 -1" in above
    assert f"`deputize show {ended.delegation_id} --proof`" in above
    assert ("2 denied" in above, ended.delegation_id in above, "All done" in above) == (True, True, False)
    assert "> All done" in below


@pytest.mark.parametrize("words", HOSTILE, ids=range(len(HOSTILE)))
def test_words_of_other_authors_stay_words(words: str) -> None:
    ended = result(words, verdict="inconclusive", why=words, checks=[checked(words)] * 20, restored=[words] * 900)
    body = evidence(ended, *[words] * 900, notes=RunNotes(words, [words] * 900))
    assert len(body) < 65_000
    (row, *_) = rows = [line for line in body.split("\n") if line.startswith("| <code>")]
    assert (row.count("|"), {*rows}) == (6, {row})
    quoted = body.partition("\n---\n")[2].partition(":\n\n")[2]
    assert all(not line or line.startswith("> ") or line.endswith("more: not listed.") for line in quoted.split("\n"))
    assert LIVE.findall(OURS.sub("", body.partition("\n---\n")[0])) == []
    assert LIVE.findall(re.sub(r"^> ", "", quoted, flags=re.MULTILINE)) == []
    shown = html.unescape(quoted)
    assert not re.search(r"[@#!~%$&^][\w\"]|:[/\d\"]|GH-\d|PROJ-\d", shown)


@pytest.mark.parametrize("words", HOSTILE, ids=range(len(HOSTILE)))
def test_a_file_that_a_host_executes_has_a_name_that_stays_a_name(words: str) -> None:
    body = executed_by_hosts([words] * 900)
    head, _, listed = body.partition("\n\n")
    assert (head, len(body) < 10_000) == ("**A git host may execute these changed files:**", True)
    lines = [line for line in listed.split("\n") if line and not line.endswith("more: not listed.")]
    assert all(re.fullmatch(r"- <code>.*</code>", line) for line in lines)
    assert LIVE.findall(re.sub(r"^- <code>|</code>$", "", "\n".join(lines), flags=re.MULTILINE)) == []


def test_a_hidden_check_is_not_shown() -> None:
    for item in ({"hidden": True}, {"files": {"t.py": "sha256:0"}}, {"hidden": None, "files": {"t.py": "x"}}):
        ended = result(verdict="verified", why="pytest probe fails", checks=[checked("pytest probe", **item)])
        assert "probe" not in evidence(ended)


def test_secrets_are_masked_before_their_characters_are_written_as_references() -> None:
    ended = result("secret_1", verdict="passed", why="secret_1", checks=[checked("secret_1")], restored=["secret_1"])
    assert "secret" not in evidence(ended, "secret_1", notes=RunNotes("secret_1", ["secret_1"]))


def test_it_names_the_model_refused_hosts_and_where_the_run_is_shown() -> None:
    ended = result()
    assert f"0 turns, 0 tool calls, 2 denied, 0.0000 USD. Delegation {ended.delegation_id}." in evidence(ended)
    body = evidence(ended, notes=RunNotes("claude-x", ["evil.example is not allowed"], "https://fleet.example/a/"))
    assert "Refused hosts:\n\n- <code>evil.example is not allowed</code>\n" in body
    assert f"[Delegation {ended.delegation_id}](https://fleet.example/a/#{ended.delegation_id})." in body
    assert "model <code>claude-x</code>, 0 turns" in body


@pytest.mark.parametrize(
    "url", ["", "unix:///x", "https://user:secret@fleet.example", "fleet.example", "https://", "https://["]
)
def test_without_an_address_for_everyone_there_is_no_link(url: str) -> None:
    assert re.search(r" USD\. Delegation dlg_\w+\.$", evidence(result(), notes=RunNotes(url=url)))
