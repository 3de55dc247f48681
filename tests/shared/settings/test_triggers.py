"""The tables ``triggers.NAME``: what they mean, and that a wrong one is named with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.shared.errors import Misconfigured
from deputize.shared.settings import Settings

WHOLE = """
[triggers.fix-issues]
scheme = "github"
secret_file = "hook"
owner = "ci"
author = "/sender/login"
allowed = ["alice"]
when = {"/action" = ["labeled", "opened"], "/issue/locked" = false, "/issue/number" = 7}
task = "Fix issue {/issue/number}"
request = {approvalMode = "readOnly", limits = {maxTurns = 5}}
"""


def loaded(folder: Path, text: str, **environ: str) -> Settings:
    config = folder / "deputize.toml"
    config.write_text(text)
    return Settings.load(config, environ=environ)


def test_a_table_has_all_that_a_trigger_is(tmp_path: Path) -> None:
    settings = loaded(tmp_path, WHOLE)
    table = settings.triggers["fix-issues"]
    assert table.secret_file == tmp_path / "hook"
    assert table.secret_file in settings.private
    assert table.when == {"/action": ["labeled", "opened"], "/issue/locked": ["false"], "/issue/number": ["7"]}
    assert table.request == {"approvalMode": "readOnly", "limits": {"maxTurns": 5}}
    passed = settings.child_environment()
    assert Settings.load(environ={"DEPUTIZE_TRIGGERS": passed["DEPUTIZE_TRIGGERS"]}).triggers == settings.triggers


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('scheme = "gitea"', "scheme"),
        ('scheme = "token"', "a token needs none"),
        ("# no secret_file = ", "secret_file holds the secrets"),
        ('owner = "a b"', "owner"),
        ('author = "sender.login"', "'sender.login' is not a JSON pointer"),
        ('allowed = ["*", "alice"]', "everyone, or a list of names"),
        ('when = {"action" = "x"}', "not a JSON pointer"),
        ('when = {"/action" = []}', "is a text, a number, true or false"),
        ('when = {"/action" = {a = 1}}', "is a text, a number, true or false"),
        ('task = ""', "task"),
        ('kind = "continue"', "key is missing"),
        ('kind = "continue"\nkey = "{/a}"', "request has no effect"),
        ("request = {task = 'x'}", "task is not a field of this table: it follows from the table"),
        ("request = {idempotencyKey = 'x'}", "idempotency_key is not a field of this table"),
        ("request = {parentId = 'x'}", "parent_id is not a field of this table"),
        ("request = {maxTurn = 5}", "maxTurn"),
        ("request = {limits = {maxTurns = 'many'}}", "limits/maxTurns"),
        ("allow = []", "allow"),
    ],
)
def test_a_wrong_table_is_refused_with_its_name(tmp_path: Path, line: str, wrong: str) -> None:
    names = {each.removeprefix("# no ").partition(" = ")[0] for each in line.splitlines()}
    kept = [each for each in WHOLE.splitlines() if each.partition(" = ")[0] not in names]
    with pytest.raises(Misconfigured) as refusal:
        loaded(tmp_path, "\n".join([*kept, line]))
    assert "triggers/fix-issues" in str(refusal.value)
    assert wrong in str(refusal.value)


@pytest.mark.parametrize("name", ["a b", "a/b", "", ".x", "x" * 65, "\u00e9"])
def test_a_name_is_one_part_of_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(Misconfigured, match="cannot be the name of a table"):
        loaded(tmp_path, WHOLE.replace("triggers.fix-issues", f'triggers."{name}"'))


def test_an_author_is_needed_unless_everyone_is_allowed(tmp_path: Path) -> None:
    without = WHOLE.replace('author = "/sender/login"\n', "")
    with pytest.raises(Misconfigured, match="author is missing"):
        loaded(tmp_path, without)
    assert loaded(tmp_path, without.replace('["alice"]', '["*"]')).triggers["fix-issues"].author is None
