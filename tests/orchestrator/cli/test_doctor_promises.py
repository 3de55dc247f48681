"""`deputize doctor` on the promises of the README: each has a row, also where it is broken or could not be tried."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.caller import Caller
from deputize.orchestrator.cli.doctor_promises import (
    HERE,
    is_accepted,
    masking_row,
    promise_rows,
    scopes_row,
    wrong_routes,
)
from deputize.orchestrator.cli.findings import Finding
from deputize.orchestrator.scopes import ROUTES, Scope
from deputize.orchestrator.token_file import TokenEntry, Tokens, append_entry, digest_of, written_entry
from deputize.shared.errors import Misconfigured, ScopeMissing
from deputize.shared.promises import PROMISES, REPORT, ProjectFacts, Report
from deputize.shared.settings import Settings
from tests.orchestrator.serving import settings

README = Path(__file__).parents[3] / "README.md"
KEY = "sk-ant-api03-Zk9hWq2LpXv7RtY4uMbN8cD"
WELL = {name: Finding("✓", name, "tried") for name in HERE}
TRIED = [promise.name for promise in PROMISES if promise.name not in HERE]


def rows(
    using: dict[str, Any] | None = None, problems: dict[str, list[str]] | None = None, **more: Any
) -> dict[str, Finding]:
    for_project = more.pop("for_project", False)
    report = Report(**{"sandbox": "", "is_memory_private": True, "variables": ["PATH"]} | more)
    report.add({name: list[str]() for name in TRIED} | (problems or {}))
    return {row.name: row for row in promise_rows(settings(**(using or {})), report, WELL, for_project=for_project)}


def states(found: dict[str, Finding], *but: str) -> set[str]:
    return {row.state for name, row in found.items() if name not in but}


def test_every_promise_of_the_readme_has_its_row_and_what_is_not_tried_has_its_reason() -> None:
    section = README.read_text("utf-8").partition("\n## Security\n")[2].partition("\n## ")[0]
    promised = re.findall(r"^\| (?!promise|--)(.+?) \| \[", section, re.MULTILINE)
    assert [promise.text for promise in PROMISES] == promised
    assert len(section.splitlines()) < 40
    untried = {promise.name: promise.untried for promise in PROMISES if promise.untried}
    assert untried.keys() == {"links", "permission"}
    assert all(", which " in reason for reason in untried.values())
    assert rows().keys() == {"sandbox", "memory", *(promise.name for promise in PROMISES)}


@pytest.mark.parametrize("name", TRIED)
def test_a_promise_that_is_broken_is_named_with_all_that_was_found_and_what_to_do(name: str) -> None:
    found = rows(problems={name: ["one thing", "another"]})
    assert found[name].state == "✗"
    assert found[name].detail.endswith(": one thing; another")
    assert "run no foreign code" in found[name].remedy
    assert states(found, name) == {"✓"}


def test_where_workers_are_elsewhere_what_is_broken_here_is_a_warning() -> None:
    found = rows({"url": "https://agents.example.org"}, {"kernel": ["ptrace"]})
    assert states(found, "kernel") == {"✓"}
    assert found["kernel"].state == "!"
    assert "https://agents.example.org" in found["elsewhere"].detail


@pytest.mark.parametrize("using", [{}, {"sandbox": {"enabled": "required"}}], ids=["default", "required"])
def test_where_workers_are_elsewhere_no_sandbox_is_needed_here(using: dict[str, Any]) -> None:
    """As in the API's container: its service's workers announce theirs."""
    found = rows(using | {"url": "http://127.0.0.1:8642"}, sandbox="no bwrap")
    assert states(found) == {"✓"}
    assert found.keys() & {"sandbox", "kernel", "masking", "links"} == {"masking", "links"}


def test_memory_that_others_can_read_is_a_warning() -> None:
    found = rows(is_memory_private=False)
    assert (found["memory"].state, states(found, "memory")) == ("!", {"✓"})


@pytest.mark.parametrize(
    ("using", "more", "state", "remedy"),
    [
        ({}, {"sandbox": "no bwrap"}, "!", "no bwrap"),
        ({"sandbox": {"enabled": "required"}}, {"sandbox": "no bwrap"}, "✗", "no bwrap"),
        ({}, {"sandbox": "no bwrap", "for_project": True}, "✗", "no bwrap"),
        ({"sandbox": {"enabled": False}}, {"sandbox": "switched off"}, "!", "unset DEPUTIZE_SANDBOX"),
    ],
    ids=["broken", "required", "for a project", "switched off"],
)
def test_a_sandbox_that_does_not_work_has_a_remedy(
    using: dict[str, Any], more: dict[str, Any], state: str, remedy: str
) -> None:
    row = rows(using, **more)["sandbox"]
    assert (row.state, row.remedy) == (state, remedy)


def test_a_promise_that_could_not_be_tried_has_the_reason() -> None:
    report = Report(error="wrong", is_memory_private=True, problems={"links": []})
    with report.attempting("kernel"):
        raise Misconfigured("no Python")
    found = {row.name: row for row in promise_rows(settings(), report, WELL)}
    assert (found["kernel"].state, found["kernel"].remedy) == ("!", "no Python")
    assert (found["files"].state, found["links"].state) == ("!", "✓")
    assert (found["settings"].state, found["settings"].detail) == ("✗", "wrong")


def test_a_report_is_the_same_after_its_way_between_two_processes() -> None:
    project = ProjectFacts("/venv", ["node_modules"], ["a note"], {"python": "3", "node": None}, is_set_up=True)
    report = Report(
        "wrong", "no bwrap", True, {"links": ["read_file"]}, {"kernel": "no Python"}, ["PATH"], project=project
    )
    assert REPORT.validate_json(REPORT.dump_json(report)) == report


def test_masking_is_tried_with_every_value() -> None:
    row = masking_row(Settings.load(environ={"ANTHROPIC_API_KEY": KEY, "DEPUTIZE_TOKEN": "token-of-the-operator"}))
    assert row.state == "✓"
    assert "2 values" in row.detail
    assert KEY not in str(row)


def test_a_secret_too_short_to_be_masked_is_named() -> None:
    row = masking_row(Settings.load(environ={"DEPUTIZE_TOKEN": "short"}))
    assert (row.state, "fewer than 8" in row.detail) == ("!", True)


class Unmasked:
    """A mask that lets all secrets through."""

    def json(self, text: str) -> str:
        return text


def test_a_secret_that_is_not_masked_is_broken() -> None:
    row = masking_row(Settings.load(environ={"DEPUTIZE_TOKEN": KEY}), Unmasked())
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
