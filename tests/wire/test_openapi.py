"""The OpenAPI document: what it says, and that it is true."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import APIRouter
from fastapi.openapi.models import OpenAPI
from fastapi.routing import APIRoute
from jsonschema_rs import Draft202012Validator

from deputize.orchestrator.app import create_app
from deputize.orchestrator.problems import Problem
from deputize.orchestrator.routes import ROUTERS
from deputize.orchestrator.scopes import OPEN_PATHS
from deputize.orchestrator.scopes import ROUTES as SCOPES
from deputize.shared.request import Limits
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.serving import opening, settings
from tests.wire.conftest import Golden
from tests.wire.samples import DELEGATION, EVENTS, REQUEST, STEP


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return json.loads(json.dumps(create_app(opening(FakeService()), settings()).openapi()))


def routes(routers: list[APIRouter]) -> Iterator[APIRoute]:
    for router in routers:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            yield route


def test_the_document(document: dict[str, Any], golden: Golden) -> None:
    golden("openapi.json", json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def test_it_is_openapi_3_1_and_refers_only_to_what_it_holds(document: dict[str, Any]) -> None:
    assert OpenAPI.model_validate(document).openapi.startswith("3.1")
    named = set(re.findall(r"#/components/schemas/([^\"]+)\"", json.dumps(document)))
    assert named == set(document["components"]["schemas"])


def test_every_route_is_in_it(document: dict[str, Any]) -> None:
    said = {(method.upper(), path) for path, operations in document["paths"].items() for method in operations}
    assert said == {(method, route.path_format) for route in routes(ROUTERS) for method in route.methods or ()}


def test_every_operation_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names)) == len(list(routes(ROUTERS)))


def test_what_is_behind_the_token_says_so_with_the_scope(document: dict[str, Any]) -> None:
    named = {(method, path.replace(":file}", "}")): scopes for (method, path), scopes in SCOPES.items()}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            wanted = None if path in OPEN_PATHS else [{"token": sorted(named[method.upper(), path])}]
            assert operation.get("security") == wanted


def test_every_refusal_is_a_problem_document(document: dict[str, Any]) -> None:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path in document["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                assert (response.get("content") == problem) is not status.startswith("2")
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_every_key_is_camel_case(document: dict[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        if name == "ToolCard":  # its parameters are the tool's own
            continue
        assert [key for key in schema.get("properties", {}) if not re.fullmatch(r"[a-z][a-zA-Z0-9]*", key)] == []


def operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        yield from path.values()


def test_every_property_and_every_parameter_is_described(document: dict[str, Any]) -> None:
    silent = [
        f"{name}.{key}"
        for name, schema in document["components"]["schemas"].items()
        for key, field in schema.get("properties", {}).items()
        if not field.get("description")
    ]
    for operation in operations(document):
        silent += [
            f"{operation['operationId']}({parameter['name']})"
            for parameter in operation.get("parameters", [])
            if not parameter.get("description")
        ]
    assert silent == []


PROBLEM = Problem(type="about:blank", title="Not Found", status=404, detail="gone")
SENT: list[tuple[str, dict[str, Any]]] = [
    ("DelegationRequest", REQUEST.to_dict()),
    ("Delegation", DELEGATION.to_dict()),
    ("ToolAgentResult", DELEGATION.to_dict()["result"]),
    ("Step", STEP.to_dict()),
    ("WorkerCard", worker_card().to_dict()),
    ("Problem", PROBLEM.to_dict()),
    ("Batch", {"requests": [REQUEST.to_dict()], "sharedContext": "x"}),
    *(("Event", envelope.to_dict()) for envelope in EVENTS.values()),
]


@pytest.mark.parametrize(("schema", "value"), SENT, ids=[f"{name}-{value.get('type', '')}" for name, value in SENT])
def test_what_is_sent_is_as_the_document_says(document: dict[str, Any], schema: str, value: dict[str, Any]) -> None:
    whole = {"$ref": f"#/components/schemas/{schema}", "components": document["components"]}
    assert [error.message for error in Draft202012Validator(whole).iter_errors(value)] == []
    known = _properties(document, schema, value)
    assert set(value) <= known


def _properties(document: dict[str, Any], name: str, value: dict[str, Any]) -> set[str]:
    schema = document["components"]["schemas"][name]
    if mapping := schema.get("discriminator", {}).get("mapping"):
        return _properties(document, mapping[value["type"]].rsplit("/", 1)[-1], value)
    return set(schema["properties"])


def test_numbers_as_text_are_taken_as_the_document_says(document: dict[str, Any]) -> None:
    assert "may be written as text" in document["components"]["schemas"]["Limits"]["description"]
    assert Limits.model_validate({"maxTurns": "5", "timeoutSeconds": "1.5"}) == Limits(max_turns=5, timeout_seconds=1.5)


def test_no_default_is_an_object(document: dict[str, Any]) -> None:
    """Generators leave out an operation that has one: no client could hand over work."""

    def defaults(part: Any) -> Iterator[Any]:
        if isinstance(part, dict):
            yield part.get("default")
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            yield from defaults(inner)

    assert [default for default in defaults(document["components"]) if isinstance(default, dict)] == []
