"""`deputize doctor` on the promises of the README: each has a row, also where it is broken or could not be tried."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.cli.doctor_promises import HERE, PROMISES, promise_rows
from deputize.orchestrator.cli.findings import Finding
from tests.orchestrator.serving import settings

README = Path(__file__).parents[3] / "README.md"
WELL = {name: Finding("✓", name, "tried") for name in HERE}
TRIED = [promise.name for promise in PROMISES if promise.name not in HERE]
MORE = {"sandbox": None, "private": True, "variables": ["PATH"], "redis": False, "groups": False}


def rows(more: dict[str, Any], using: dict[str, Any] | None = None, **problems: list[str]) -> dict[str, Finding]:
    found = {"problems": {name: [] for name in TRIED} | problems, "untried": {}, "more": MORE | more}
    return {row.name: row for row in promise_rows(settings(**(using or {})), found, WELL)}


def states(found: dict[str, Finding], *but: str) -> set[str]:
    return {row.state for name, row in found.items() if name not in but}


def test_every_promise_of_the_readme_has_its_row_and_what_is_not_tried_has_its_reason() -> None:
    section = README.read_text("utf-8").partition("\n## Security\n")[2].partition("\n## ")[0]
    promised = re.findall(r"^\| (?!promise|--)(.+?) \| `", section, re.MULTILINE)
    assert [promise.text for promise in PROMISES] == promised
    assert len(section.splitlines()) < 40
    untried = {promise.name: promise.untried for promise in PROMISES if promise.untried}
    assert untried.keys() == {"links", "permission"}
    assert all(", which " in reason for reason in untried.values())
    assert rows({}).keys() == {"sandbox", "memory", *(promise.name for promise in PROMISES)}


@pytest.mark.parametrize("name", TRIED)
def test_a_promise_that_is_broken_is_named_with_all_that_was_found_and_what_to_do(name: str) -> None:
    found = rows({}, None, **{name: ["one thing", "another"]})
    assert found[name].state == "✗"
    assert found[name].detail.endswith(": one thing; another")
    assert "run no foreign code" in found[name].remedy
    assert states(found, name) == {"✓"}


def test_where_workers_are_elsewhere_what_is_broken_here_is_a_warning() -> None:
    found = rows({}, {"url": "https://agents.example.org"}, kernel=["ptrace"])
    assert states(found, "kernel") == {"✓"}
    assert found["kernel"].state == "!"
    assert "https://agents.example.org" in found["elsewhere"].detail


@pytest.mark.parametrize("using", [{}, {"sandbox": {"enabled": "required"}}], ids=["default", "required"])
def test_where_workers_are_elsewhere_no_sandbox_is_needed_here(using: dict[str, Any]) -> None:
    """As in the API's container: its service's workers announce theirs."""
    found = rows({"sandbox": "no bwrap"}, using | {"url": "http://127.0.0.1:8642"})
    assert states(found) == {"✓"}
    assert found.keys() & {"sandbox", "kernel", "masking", "links"} == {"masking", "links"}


def test_memory_that_others_can_read_is_a_warning() -> None:
    found = rows({"private": False})
    assert (found["memory"].state, states(found, "memory")) == ("!", {"✓"})


@pytest.mark.parametrize(
    ("using", "more", "state", "remedy"),
    [
        ({}, {"sandbox": "no bwrap"}, "!", "no bwrap"),
        ({"sandbox": {"enabled": "required"}}, {"sandbox": "no bwrap"}, "✗", "no bwrap"),
        ({}, {"sandbox": "no bwrap", "project": None}, "✗", "no bwrap"),
        ({"sandbox": {"enabled": False}}, {"sandbox": "switched off"}, "!", "unset DEPUTIZE_SANDBOX"),
    ],
    ids=["broken", "required", "for a project", "switched off"],
)
def test_a_sandbox_that_does_not_work_has_a_remedy(
    using: dict[str, Any], more: dict[str, Any], state: str, remedy: str
) -> None:
    row = rows(more, using)["sandbox"]
    assert (row.state, row.remedy) == (state, remedy)


def test_a_promise_that_could_not_be_tried_has_the_reason() -> None:
    found = {"problems": {"links": []}, "untried": {"kernel": "no Python"}, "more": {"error": "wrong", "private": True}}
    found = {row.name: row for row in promise_rows(settings(), found, WELL)}
    assert (found["kernel"].state, found["kernel"].remedy) == ("!", "no Python")
    assert (found["files"].state, found["links"].state) == ("!", "✓")
    assert (found["settings"].state, found["settings"].detail) == ("✗", "wrong")
