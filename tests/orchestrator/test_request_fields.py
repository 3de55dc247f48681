"""The request that the keyword arguments of a call make."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.orchestrator.request_fields import request_of
from deputize.shared.errors import Invalid
from deputize.shared.request import DelegationRequest, DirectoryWorkspace


def test_fields_beside_a_request_are_its_defaults() -> None:
    request = DelegationRequest(task="one", context="its own")
    made = request_of(request, {"context": "shared", "expected_outcome": "shared", "workspace": "."})
    assert (made.task, made.context, made.expected_outcome) == ("one", "its own", "shared")
    assert made.workspace == DirectoryWorkspace(kind="directory", path=str(Path().absolute()))
    assert request_of(request, {}) is request


def test_a_mistake_in_a_field_beside_a_request_is_refused() -> None:
    with pytest.raises(Invalid, match="limits"):
        request_of(DelegationRequest(task="one"), {"limits": {"max_turns": 0}})
