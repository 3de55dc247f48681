"""Requests, results, events, delegations and problems: their JSON, and that it survives both ways (P-02)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, get_args

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import ValidationError

from deputize.shared.delegation import Delegation, StepType, ToolAgentResult
from deputize.shared.errors import Conflict, Forbidden, KeyReused, NotFound, Refused, TooLarge, Unavailable
from deputize.shared.events import AnyEvent, Envelope
from deputize.shared.kept_step import ToolAgentStep
from deputize.shared.request import DelegationRequest
from deputize.shared.wire import Wire
from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served, settings
from tests.wire.conftest import Golden
from tests.wire.samples import DELEGATION, EVENTS, ID, MERGE, REQUEST, RESULT, STEP, TRANSIENT

VALUES: dict[str, Wire] = {
    "request": REQUEST,
    "result": RESULT,
    "result-of-merge": MERGE,
    "delegation": DELEGATION,
    "tool-agent-step": ToolAgentStep.of(STEP),
    "request-defaults": DelegationRequest(task="t"),
}


def readable(text: str) -> str:
    """The same JSON, in the same order, for people who read a diff."""
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"


@pytest.mark.requirement("P-02", "S002-047", "S002-048", "S002-049")
@pytest.mark.parametrize("name", VALUES)
def test_a_value_on_the_wire(name: str, golden: Golden) -> None:
    golden(f"{name}.json", readable(VALUES[name].to_json()))


@pytest.mark.requirement("P-02")
@pytest.mark.parametrize("name", VALUES)
def test_a_value_survives_json_byte_for_byte(name: str) -> None:
    value = VALUES[name]
    again = type(value).model_validate_json(value.to_json())
    assert again == value
    assert again.to_json() == value.to_json()
    assert json.loads(value.to_json()) == value.to_dict()


@pytest.mark.requirement("P-02")
@given(
    task=some.text(min_size=1).filter(str.strip),
    context=some.text(),
    labels=some.dictionaries(some.text(), some.text()),
    timeout=some.floats(min_value=0.001, max_value=1e9),
    schema=some.none()
    | some.dictionaries(some.text(), some.none() | some.booleans() | some.integers(-(2**63), 2**63 - 1) | some.text()),
)
def test_any_request_survives_json_byte_for_byte(
    task: str, context: str, labels: dict[str, str], timeout: float, schema: dict[str, Any] | None
) -> None:
    limits = {"timeoutSeconds": timeout}
    request = DelegationRequest.model_validate(
        {"task": task, "context": context, "labels": labels, "limits": limits, "outputSchema": schema}
    )
    again = DelegationRequest.model_validate_json(request.to_json())
    assert again == request
    assert again.to_json() == request.to_json()


@pytest.mark.requirement("P-02")
def test_a_writer_may_know_less_and_a_reader_may_know_more() -> None:
    """One rule: requests refuse keys they do not know, everything else ignores them."""
    with pytest.raises(ValidationError):
        DelegationRequest.model_validate(REQUEST.to_dict() | {"new": 1})
    assert ToolAgentResult.model_validate(RESULT.to_dict() | {"new": 1}) == RESULT
    assert Delegation.model_validate(DELEGATION.to_dict() | {"new": 1}) == DELEGATION
    assert Envelope.from_json(json.dumps(EVENTS["progress"].to_dict() | {"new": 1})) == EVENTS["progress"]


@pytest.mark.requirement("P-12", "S002-063")
@pytest.mark.parametrize("type", EVENTS)
def test_an_event_on_the_wire(type: str, golden: Golden) -> None:
    envelope = EVENTS[type]
    golden(f"events/{type}.json", readable(envelope.to_json()))
    assert Envelope.from_json(envelope.to_json()).to_json() == envelope.to_json()
    assert json.loads(envelope.to_json()) == envelope.to_dict()
    assert "\n" not in envelope.to_json()


def test_there_is_a_golden_event_of_every_type() -> None:
    every = {event.model_fields["type"].default: event.durable for event in get_args(get_args(AnyEvent)[0])}
    assert set(EVENTS) == set(every)
    assert {name for name, durable in every.items() if not durable} == TRANSIENT


@pytest.mark.requirement("S002-084")
def test_the_types_of_steps_are_those_of_the_contract() -> None:
    assert get_args(StepType) == (
        "bash",
        "bash-confirm",
        "read",
        "write",
        "edit",
        "glob",
        "grep",
        "skill",
        "delegate",
        "tool_call",
    )


@pytest.mark.requirement("S002-082")
def test_a_step_has_every_field_of_the_contract() -> None:
    of_files = {"changes", "moreChanges", "diff"}  # left out where no file changed
    assert set(STEP.to_dict()) - of_files == {
        "id",
        "type",
        "title",
        "description",
        "status",
        "toolName",
        "arguments",
        "turnIndex",
        "timestamp",
        "thinking",
        "result",
        "summary",
        "error",
        "toolAgentResult",
    }


RAISED: dict[str, Exception] = {
    "not-found": NotFound(f"there is no delegation {ID}"),
    "key-reused": KeyReused(
        "this key stands for another body", [{"pointer": "/idempotencyKey", "detail": "used before"}]
    ),
    "too-large": TooLarge("task and context are 1,048,577 bytes together; the cap is 1,048,576"),
    "conflict": Conflict("already answered"),
    "refused": Refused("no"),
    "forbidden": Forbidden("a page of another origin sent this request"),
    "unavailable": Unavailable("Redis does not answer; try again in a moment"),
    "unexpected": RuntimeError("nobody may read this"),
}
ASKED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "invalid": ("POST", "/v1/delegations", {"json": {"task": " ", "limits": {"maxTurn": 3, "maxToolCalls": -1}}}),
    "invalid-query": ("GET", "/v1/delegations?statuss=failed&limit=0", {}),
    "not-json": ("POST", "/v1/delegations", {"content": "{", "headers": {"Content-Type": "application/json"}}),
    "not-sent-as-json": ("POST", "/v1/delegations", {"content": "{}"}),
    "body-too-large": ("POST", "/v1/delegations", {"json": {"task": "x" * 2 * 1024 * 1024}}),
    "no-such-path": ("GET", "/v1/nothing", {}),
    "no-such-method": ("DELETE", "/v1/delegations", {}),
    "unauthorized": ("GET", "/v1/tools", {"headers": {"Authorization": "Bearer wrong"}}),
}


@pytest.fixture
async def http(request: pytest.FixtureRequest) -> AsyncIterator[tuple[httpx2.AsyncClient, FakeService]]:
    service = FakeService()
    headers = {"Authorization": "Bearer right", "X-Request-ID": "req-1"}
    async with (
        served(service, settings(token="right")) as url,
        httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url, headers=headers) as client,
    ):
        yield client, service


@pytest.mark.parametrize("name", [*RAISED, *ASKED])
async def test_a_problem_on_the_wire(name: str, golden: Golden, http: tuple[httpx2.AsyncClient, FakeService]) -> None:
    client, service = http
    method, path, request = ASKED.get(name, ("GET", f"/v1/delegations/{ID}", {}))
    service.away = RAISED.get(name)
    answer = await client.request(method, path, **request)
    assert answer.headers["content-type"] == "application/problem+json"
    head = [f"HTTP {answer.status_code}"]
    head += [
        f"{header}: {answer.headers[header]}"
        for header in ("retry-after", "www-authenticate", "allow")
        if header in answer.headers
    ]
    golden(f"problems/{name}.txt", "\n".join(head) + "\n\n" + readable(answer.text))
