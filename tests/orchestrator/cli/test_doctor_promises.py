"""`deputize doctor` on the promises of SECURITY.md: each has a row, also where it is broken or could not be tried."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from deputize.orchestrator.access_tokens import Caller, TokenEntry, Tokens, append_entry, digest_of, written_entry
from deputize.orchestrator.cli.doctor import is_accepted, machine_rows, masking_row, scopes_row, wrong_routes
from deputize.orchestrator.operations import ROUTES
from deputize.orchestrator.scopes import Scope
from deputize.shared.errors import ScopeMissing
from deputize.shared.promises import PROMISES, Finding
from deputize.shared.settings import Settings
from tests.orchestrator.serving import settings

SECURITY = Path(__file__).parents[3] / ".github/SECURITY.md"
KEY = "sk-ant-api03-Zk9hWq2LpXv7RtY4uMbN8cD"
WELL = [Finding("✓", promise.name, "tried") for promise in PROMISES if not promise.by_service]


def states(found: list[Finding]) -> dict[str, str]:
    return {row.name: row.state for row in found}


def test_every_promise_of_the_policy_is_known_and_what_is_not_tried_has_its_reason() -> None:
    section = SECURITY.read_text("utf-8").partition("\n## What is promised\n")[2].partition("\n## ")[0]
    promised = re.findall(r"^\| (?!promise|--)(.+?) \| \[", section, re.MULTILINE)
    assert [promise.text for promise in PROMISES] == promised
    assert len(section.splitlines()) < 40
    untried = {promise.name: promise.untried for promise in PROMISES if promise.untried}
    assert untried.keys() == {"links", "permission"}
    assert all(", which " in reason for reason in untried.values())


def test_where_workers_are_elsewhere_what_is_broken_here_is_a_warning() -> None:
    lacking = [Finding("!", "ripgrep", "missing"), Finding("!", "pdf", "missing")]
    found = [*WELL, Finding("✗", "sandbox", "works not"), *lacking, Finding("✗", "links", "followed")]
    assert [*machine_rows(settings(), found)] == found
    elsewhere, *rows = machine_rows(settings(url="https://agents.example.org"), found)
    assert "https://agents.example.org" in elsewhere.detail
    assert rows[-1].state == "!"
    needed = states(rows).keys() & {"sandbox", "kernel", "permission", "ripgrep", "pdf"}
    assert needed == {"permission"}  # all others are about workers
    assert states([*machine_rows(settings(url="http://127.0.0.1:8642"), lacking)]).keys() == {"elsewhere"}
    assert states([*machine_rows(settings(url="http://127.0.0.1:8642"), WELL)])["kernel"] == "✓"


def test_masking_is_tried_with_every_value() -> None:
    row = masking_row(Settings.load(environ={"ANTHROPIC_API_KEY": KEY, "DEPUTIZE_TOKEN": "token-of-the-operator"}))
    assert row.state == "✓"
    assert "2 values" in row.detail
    assert KEY not in str(row)


def test_a_secret_too_short_to_be_masked_is_named() -> None:
    row = masking_row(Settings.load(environ={"DEPUTIZE_TOKEN": "short"}))
    assert (row.state, "fewer than 8" in row.detail) == ("!", True)


def test_a_secret_that_is_not_masked_is_broken() -> None:
    row = masking_row(Settings.load(environ={"DEPUTIZE_TOKEN": KEY}), mask=str)
    assert (row.state, KEY in str(row)) == ("✗", False)


def test_scopes_are_tried_with_new_tokens_and_with_those_of_the_file(tmp_path: Path) -> None:
    assert scopes_row(Settings()).state == "✓"
    using = Settings.load(environ={"DEPUTIZE_TOKENS_FILE": str(tmp_path / "tokens")})
    append_entry(tmp_path / "tokens", written_entry("ci", digest_of(b"secret"), ["submit"], None))
    assert "1 of the file" in scopes_row(using).detail
    (tmp_path / "tokens").write_text("wrong")
    assert scopes_row(using).state == "!"


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
