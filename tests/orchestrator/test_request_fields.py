"""The request that the keyword arguments of a call make."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.request_checks import check_requests
from deputize.orchestrator.request_fields import located_in, request_of
from deputize.shared.errors import Invalid
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest, DirectoryWorkspace
from deputize.shared.settings import Settings


def test_fields_beside_a_request_are_its_defaults() -> None:
    request = DelegationRequest(task="one", context="its own")
    made = request_of(request, {"context": "shared", "expected_outcome": "shared", "workspace": "."})
    assert (made.task, made.context, made.expected_outcome) == ("one", "its own", "shared")
    assert made.workspace == DirectoryWorkspace(kind="directory", path=str(Path().absolute()))
    assert request_of(request, {}) is request


def test_limits_beside_a_request_complete_its_own() -> None:
    request = DelegationRequest.model_validate({"task": "one", "limits": {"maxTurns": 5}})
    made = request_of(request, {"limits": {"max_turns": 9, "max_cost_usd": 0.1}})
    assert (made.limits.max_turns, made.limits.max_cost_usd) == (5, 0.1)
    assert request_of(request, {"limits": Limits(max_tool_calls=3)}).limits == Limits(max_turns=5, max_tool_calls=3)


def test_a_mistake_in_a_field_beside_a_request_is_refused() -> None:
    with pytest.raises(Invalid, match="limits"):
        request_of(DelegationRequest(task="one"), {"limits": {"max_turns": 0}})


def test_a_relative_directory_begins_where_the_caller_is() -> None:
    for given, path in (("src", "/base/src"), ("/abs", "/abs")):
        located = located_in(Path("/base"), DelegationRequest.model_validate({"task": "t", "workspace": given}))
        assert located.workspace == DirectoryWorkspace(kind="directory", path=path)
    empty = DelegationRequest(task="t")
    assert located_in(Path("/base"), empty) is empty


def test_a_relative_directory_below_a_folder_whose_name_is_no_text_is_refused() -> None:
    with pytest.raises(Invalid, match=r"^workspace/path: there is half of a character"):
        located_in(Path("/base\udcff"), DelegationRequest(task="t", workspace="src"))


@pytest.mark.parametrize(
    ("sources", "local", "why"),
    [
        (None, True, None),
        (
            None,
            False,
            "may not be copied: with DEPUTIZE_REDIS_URL none may, until DEPUTIZE_WORKSPACE_SOURCES names roots",
        ),
        ([], False, "is not below an allowed root"),
        ("self", False, None),
    ],
)
def test_a_directory_needs_an_allowed_root_unless_redis_is_embedded(
    tmp_path: Path, sources: Any, local: bool, why: str | None
) -> None:
    (folder := tmp_path / "work").mkdir()
    roots = [tmp_path] if sources == "self" else sources
    using = Settings.load(environ={}, home=tmp_path / "home", workspace_sources=roots, local=local)
    request = DelegationRequest.model_validate({"task": "t", "workspace": {"kind": "directory", "path": str(folder)}})
    with pytest.raises(Invalid, match=f"^workspace path '{folder}' {why}") if why else nullcontext():
        check_requests([request], [], using, batch=False)
