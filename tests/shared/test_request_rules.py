"""What holds for every request, from any caller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from deputize.shared.checks import CommandCheck
from deputize.shared.errors import Misconfigured, TooLarge
from deputize.shared.request import MAX_REQUEST_BYTES, MAX_TEXT_BYTES, DelegationRequest
from deputize.shared.request_rules import check_sizes, foreign_script, no_effort, with_effort
from deputize.shared.settings import Settings


def test_task_and_context_have_a_cap_together() -> None:
    half = MAX_TEXT_BYTES // 2
    check_sizes(DelegationRequest(task="x" * half, context="y" * half))
    with pytest.raises(TooLarge, match="task and context are"):
        check_sizes(DelegationRequest(task="x" * half, context="y" * half + "é"))


def test_the_whole_request_has_a_cap() -> None:
    with pytest.raises(TooLarge, match="the request is"):
        check_sizes(DelegationRequest(task="x", labels={"a": "é" * (MAX_REQUEST_BYTES // 2)}))


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028", "\x1b", "\0"])
def test_a_name_of_a_model_is_one_line(end: str) -> None:
    with pytest.raises(ValidationError, match="a name has no line ends"):
        DelegationRequest(task="t", model=f"sonnet{end}model: opus")


@pytest.mark.parametrize("model", [None, "claude-sonnet-5-5", "scripted", "scripted:", "scripted:/opt/one.yaml"])
def test_a_model_that_is_no_script_or_the_operators_own_may_be_named(model: str | None) -> None:
    assert foreign_script(model, Settings.load(environ={}, model="scripted:/opt/one.yaml")) is None


def test_a_script_may_be_named_inside_the_operators_folder_only(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (inside / "out.yaml").symlink_to("/etc/passwd")
    (inside / "loop").symlink_to(inside / "loop")
    settings = Settings.load(environ={}, scripts=inside)
    assert foreign_script(f"scripted:{inside}/a.yaml", settings) is None
    for path in ("/opt/two.yaml", f"{inside}/../x", f"{inside}/out.yaml", "a\0b", "x" * 9000):
        assert "a request may not name a script" in str(foreign_script(f"scripted:{path}", settings))
    assert foreign_script("scripted:/opt/two.yaml", Settings.load(environ={})) is not None


@pytest.mark.parametrize(
    "given",
    ["make test", ["make test"], '["make test"]', [{"kind": "command", "run": "make test"}]],
)
def test_a_check_may_be_the_command_itself(given: Any) -> None:
    request = DelegationRequest.model_validate({"task": "t", "verify": given})
    assert [check.to_dict() for check in request.verify] == [CommandCheck(kind="command", run="make test").to_dict()]


def test_a_request_has_the_effort_of_its_models_table_unless_it_has_one_itself() -> None:
    """Issue 39, point 2."""
    settings = Settings.load(environ={}, model="house", models={"house": {"effort": "low"}, "other": {}})
    asked: list[dict[str, Any]] = [
        {},
        {"model": "house"},
        {"effort": "max"},
        {"model": "other"},
        {"merges": ["dlg_a", "dlg_b"]},
    ]
    efforts = [with_effort(DelegationRequest(task="t", **each), settings).effort for each in asked]
    assert efforts == ["low", "low", "max", None, None]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("plain", "as `lacks` of its table states"),
        ("scripted", "is a script"),
        ("scripted:/opt/one.yaml", "is a script"),
        ("house", None),
        ("claude-opus-5-5", None),
    ],
)
def test_an_effort_for_a_model_that_takes_none_is_refused_with_the_reason(model: str, reason: str | None) -> None:
    """Issue 39, point 2."""
    tables = {"plain": {"lacks": ["effort"]}, "house": {"model": "m"}}
    settings = Settings.load(environ={}, models=tables)
    refused = no_effort(DelegationRequest(task="t", model=model, effort="high"), settings)
    assert (refused is None) if reason is None else (reason in str(refused))
    assert no_effort(DelegationRequest(task="t", model=model), settings) is None


@pytest.mark.parametrize("word", ["", "High", "highest", "none", "minimal", " low", 3, True, ["low"]])
def test_an_unknown_effort_is_refused_with_those_there_are(word: Any) -> None:
    """Issue 39, point 2."""
    with pytest.raises(ValidationError, match="'low', 'medium', 'high', 'xhigh' or 'max'"):
        DelegationRequest(task="t", effort=word)
    with pytest.raises(Misconfigured):
        Settings.load(environ={}, models={"house": {"effort": word}})


def test_a_table_with_an_effort_that_its_model_lacks_is_refused() -> None:
    """Issue 39, point 2."""
    with pytest.raises(Misconfigured, match="remove one of them"):
        Settings.load(environ={}, models={"house": {"effort": "low", "lacks": ["effort"]}})
