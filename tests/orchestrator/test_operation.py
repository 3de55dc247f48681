"""The request that a client sends for an operation, from its row and the arguments of a call."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from deputize.orchestrator.operations import OPERATIONS
from deputize.orchestrator.routes.handlers import router
from deputize.shared.message import MessageMode
from deputize.shared.request import Deliver

ROWS = {each.name: each for each in OPERATIONS}
ONE = "/v1/delegations/d"
REQUESTS: dict[str, tuple[dict[str, Any], tuple[str, dict[str, Any], str | None]]] = {
    "cancel": ({"id": "d"}, (f"{ONE}/cancel", {}, None)),
    "retry": ({"id": "d", "from_turn": 2, "idempotency_key": None}, (f"{ONE}/retry", {}, '{"fromTurn": 2}')),
    "send": (
        {"id": "d", "text": "t", "mode": MessageMode.WRAP_UP, "by": "ada"},
        (f"{ONE}/messages", {}, '{"text": "t", "mode": "wrapUp"}'),
    ),
    "answer_permission": ({"id": "a/b", "outcome": "cancel"}, ("/v1/permissions/a%2Fb", {}, '{"outcome": "cancel"}')),
    "artifact": ({"id": "d", "name": "a b", "version": None}, (f"{ONE}/artifacts/a%20b", {}, None)),
    "cost": (
        {"by": "day", "since": datetime(2026, 11, 28, tzinfo=UTC)},
        ("/v1/cost", {"by": "day", "since": "2026-11-28T00:00:00Z"}, None),
    ),
    "deliver": ({"id": "d", "wanted": Deliver(branch="b")}, (f"{ONE}/deliver", {}, '{"branch":"b"}')),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_arguments_are_in_the_path_the_query_or_the_body(name: str) -> None:
    given, sent = REQUESTS[name]
    assert ROWS[name].request(given) == sent


def test_without_a_value_a_body_as_a_whole_is_an_empty_object() -> None:
    assert ROWS["deliver"].request({"id": "d", "wanted": None}) == (f"{ONE}/deliver", {}, "{}")


def test_a_query_or_a_body_without_a_function_of_its_route_names_where_that_is_added() -> None:
    with pytest.raises(TypeError, match=r"create takes \['request'\] beside its path: add a function with `handles`"):
        router()
