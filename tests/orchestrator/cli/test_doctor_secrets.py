"""`deputize doctor` on secrets and tokens: each row is tried on this machine."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import pytest

from deputize.orchestrator.caller import Caller
from deputize.orchestrator.cli.doctor_scopes import is_accepted, scopes_row, wrong_routes
from deputize.orchestrator.cli.doctor_secrets import key_rows, masking_row
from deputize.orchestrator.cli.findings import Finding
from deputize.orchestrator.scopes import ROUTES, Scope
from deputize.orchestrator.token_file import TokenEntry, Tokens, append_entry, digest_of, written_entry
from deputize.shared.errors import ScopeMissing
from deputize.shared.settings import Settings
from tests.worker.forked import need_root

KEY = "sk-ant-api03-Zk9hWq2LpXv7RtY4uMbN8cD"


def rows(monkeypatch: pytest.MonkeyPatch, **variables: str) -> dict[str, Finding]:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    using = Settings.load()
    return {row.name: row for row in (masking_row(using), scopes_row(using), *key_rows())}


def test_masking_is_tried_with_every_value(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rows(monkeypatch, ANTHROPIC_API_KEY=KEY, DEPUTIZE_TOKEN="token-of-the-operator")
    assert found["masking"].state == "✓"
    assert "2 values" in found["masking"].detail
    assert KEY not in str(found)


def test_a_secret_too_short_to_be_masked_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rows(monkeypatch, DEPUTIZE_TOKEN="short")
    assert (found["masking"].state, "fewer than 8" in found["masking"].detail) == ("!", True)


def test_a_key_in_the_environment_is_named_and_one_in_a_private_file_is_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = rows(monkeypatch, ANTHROPIC_API_KEY=KEY)
    assert (found["keys"].state, found["keys"].remedy) == ("✓", "")  # the front page has it set
    assert "every program started from here inherits; a file named by ANTHROPIC_API_KEY_FILE" in found["keys"].detail
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o600)
    assert rows(monkeypatch, ANTHROPIC_API_KEY_FILE=str(tmp_path / "key"))["keys"].state == "✓"
    (tmp_path / "key").chmod(0o644)
    found = rows(monkeypatch)
    assert (found["keys"].state, found["keys"].remedy) == ("!", f"chmod 600 {tmp_path / 'key'}")


def test_nothing_is_to_be_changed_of_a_containers_secret_that_is_not_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    need_root()
    file = tmp_path / "anthropic_api_key"
    file.write_text(KEY)
    file.chmod(0o644)
    monkeypatch.setenv("ANTHROPIC_API_KEY_FILE", str(file))
    assert [row.remedy for row in key_rows(tmp_path)] == [f"chmod 600 {file}"]
    os.chown(file, 1000, 1000)
    assert [(row.state, row.remedy) for row in key_rows(tmp_path)] == [("✓", "")]
    assert [row.remedy for row in key_rows()] == [f"chmod 600 {file}"]


class Unmasked:
    """A mask that lets all secrets through."""

    def json(self, text: str) -> str:
        return text


def test_a_secret_that_is_not_masked_is_broken() -> None:
    row = masking_row(Settings.load(environ={"DEPUTIZE_TOKEN": KEY}), Unmasked())
    assert (row.state, KEY in str(row)) == ("✗", False)


def test_scopes_are_tried_with_new_tokens_and_with_those_of_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert rows(monkeypatch)["scopes"].state == "✓"
    append_entry(tmp_path / "tokens", written_entry("ci", digest_of(b"secret"), ["submit"], None))
    assert "1 of the file" in rows(monkeypatch, DEPUTIZE_TOKENS_FILE=str(tmp_path / "tokens"))["scopes"].detail
    (tmp_path / "tokens").write_text("wrong")
    assert rows(monkeypatch)["scopes"].state == "!"


class Unchecked(Caller):
    """A caller whose scopes do not matter."""

    def check(self, needed: Collection[Scope]) -> None:
        pass


class Refused(Caller):
    """A caller that may do nothing."""

    def check(self, needed: Collection[Scope]) -> None:
        raise ScopeMissing("no")


def test_a_token_that_opens_more_or_less_than_its_scopes_is_found() -> None:
    scopes = frozenset({Scope.READ})
    others = [f"{method} {route}" for (method, route), needed in ROUTES.items() if not needed <= scopes]
    found = [*wrong_routes(Unchecked("a", scopes))]
    assert len(found) == len(others) > 5
    assert "may POST /v1/delegations without that scope" in found[0]
    assert len([*wrong_routes(Refused("a", scopes))]) == len(ROUTES) - len(others)
    assert [*wrong_routes(Caller("a", scopes))] == []


class Credulous(Tokens):
    """Takes every text for a token."""

    def find(self, given: bytes) -> TokenEntry:
        return TokenEntry(name="any", sha256=digest_of(given), scopes=frozenset({Scope.READ}))


def test_that_an_unknown_token_is_accepted_is_found() -> None:
    using = Settings.load(environ={"DEPUTIZE_TOKEN": KEY})
    assert is_accepted(Credulous(using), b"unknown")
    assert not is_accepted(Tokens(using), b"unknown")
