"""The OpenAPI document: what it has, and that it is true."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from fastapi import APIRouter
from fastapi.openapi.models import OpenAPI
from fastapi.routing import APIRoute
from jsonschema_rs import Draft202012Validator
from pydantic import BaseModel

from deputize.orchestrator import openapi
from deputize.orchestrator.app import create_app
from deputize.orchestrator.mcp.schemas import input_schema
from deputize.orchestrator.operations import ROUTES as SCOPES
from deputize.orchestrator.problems import Problem
from deputize.orchestrator.routes import BODIES, ROUTERS
from deputize.shared import errors
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from tests.orchestrator.access_tokens import OPEN_PATHS
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.serving import opening, settings
from tests.wire.conftest import Golden
from tests.wire.examples import EXAMPLES, json_of
from tests.wire.samples import DELEGATION, EVENTS, REQUEST, STEP


def made() -> dict[str, Any]:
    return json.loads(json.dumps(create_app(opening(FakeService()), settings()).openapi()))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return made()


def routes(routers: list[APIRouter]) -> Iterator[APIRoute]:
    for router in routers:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            yield route


def test_the_document_and_its_examples(golden: Golden) -> None:
    lines = [f"{json.dumps(key)}: {json.dumps(json_of(value))}" for key, value in EXAMPLES.items()]
    golden(str(openapi.EXAMPLES), "{\n" + ",\n".join(lines) + "\n}\n")
    golden("openapi.json", json.dumps(made(), indent=2, ensure_ascii=False) + "\n")


SHORT: Sequence[dict[str, Any]] = (
    {"verify": "true"},
    {"verify": ["true", {"kind": "command", "run": "true"}]},
    {"workspace": "/srv/shop"},
    *({name: None} for name, field in DelegationRequest.model_fields.items() if not field.is_required()),
)


@pytest.mark.parametrize("short", SHORT, ids=repr)
def test_the_short_forms_that_are_accepted_are_valid(document: dict[str, Any], short: dict[str, Any]) -> None:
    body = {"task": "do it"} | {
        DelegationRequest.model_fields[name].alias or name: each for name, each in short.items()
    }
    DelegationRequest.model_validate(body)
    schemas = (
        {"$ref": "#/components/schemas/DelegationRequest", "components": document["components"]},
        input_schema(DelegationRequest),
    )
    for schema in schemas:
        Draft202012Validator(schema).validate(body)
        for wrong in ({"verify": 1}, {"verify": [1]}, {"workspace": 1}, {"task": None}, {"context": 1}):
            assert not Draft202012Validator(schema).is_valid(body | wrong)


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


def test_every_group_of_operations_is_described_and_in_use(document: dict[str, Any]) -> None:
    named = {tag for path in document["paths"].values() for operation in path.values() for tag in operation["tags"]}
    assert named == {tag["name"] for tag in document["tags"] if tag["description"]}
    assert document["servers"] == [{"url": "/"}]


def test_operations_behind_the_token_declare_their_scope(document: dict[str, Any]) -> None:
    named = {(method, path.replace(":file}", "}")): scopes for (method, path), scopes in SCOPES.items()}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            wanted = None if path in OPEN_PATHS else [{"token": sorted(named[method.upper(), path])}]
            assert operation.get("security") == wanted


def test_every_refusal_is_a_problem_document(document: dict[str, Any]) -> None:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for name, path in document["paths"].items():
        for operation in path.values():
            assert name in OPEN_PATHS or "default" in operation["responses"]
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


def bodies(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The media types of all requests and of all responses to what succeeds."""
    for operation in operations(document):
        answers = {status: body for status, body in operation["responses"].items() if status.startswith("2")}
        for name, body in {"request": operation.get("requestBody", {}), **answers}.items():
            for content in body.get("content", {}).values():
                yield f"{operation['operationId']} {name}", content


def test_every_body_and_every_part_of_a_path_has_a_valid_example(document: dict[str, Any]) -> None:
    for name, content in bodies(document):
        if content["schema"].get("format") != "binary":  # bytes cannot be written in JSON
            assert "example" in content, name
            whole = {**content["schema"], "components": document["components"]}
            assert [error.message for error in Draft202012Validator(whole).iter_errors(content["example"])] == [], name
    for operation in operations(document):
        for parameter in operation.get("parameters", []):
            assert parameter["in"] != "path" or parameter["schema"]["examples"], operation["operationId"]


def test_every_example_is_used(document: dict[str, Any]) -> None:
    shown = [content["example"] for _, content in bodies(document) if "example" in content]
    assert [value for value in _given(json_of(EXAMPLES)) if value not in shown] == []


def _given(examples: dict[str, Any]) -> Iterator[Any]:
    for name, value in examples.items():
        yield from [value] if "/" in name else value.values()


@pytest.mark.parametrize("model", BODIES)
def test_the_examples_of_requests_are_accepted(document: dict[str, Any], model: type[BaseModel]) -> None:
    of_model = {"$ref": f"#/components/schemas/{model.__name__}"}
    requests = [content for name, content in bodies(document) if name.endswith("request")]
    examples = [content["example"] for content in requests if content["schema"] == of_model]
    assert examples
    for example in examples:
        assert model.model_validate(example).model_dump(mode="json", by_alias=True, exclude_unset=True) == example


def test_every_problem_type_is_listed_with_its_status(document: dict[str, Any]) -> None:
    """The tree of all errors has the same ones; ``tests/architecture/test_errors.py`` compares it with the code."""
    in_tree = re.findall(r"── (\w+) +.*\(HTTP (\d+)", errors.__doc__ or "")
    wanted = {"urn:deputize:" + re.sub(r"\B([A-Z])", r"-\1", name).lower(): status for name, status in in_tree}
    description = document["components"]["schemas"]["Problem"]["properties"]["type"]["description"]
    assert dict(re.findall(r"^- `(.+)` \((\d+)\): \w", description, re.MULTILINE)) == wanted
    assert len(wanted) >= 15


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
def test_what_is_sent_is_as_documented(document: dict[str, Any], schema: str, value: dict[str, Any]) -> None:
    whole = {"$ref": f"#/components/schemas/{schema}", "components": document["components"]}
    assert [error.message for error in Draft202012Validator(whole).iter_errors(value)] == []
    known = _properties(document, schema, value)
    assert set(value) <= known


def _properties(document: dict[str, Any], name: str, value: dict[str, Any]) -> set[str]:
    schema = document["components"]["schemas"][name]
    if mapping := schema.get("discriminator", {}).get("mapping"):
        return _properties(document, mapping[value["type"]].rsplit("/", 1)[-1], value)
    return set(schema["properties"])


def test_numbers_as_text_are_taken_as_the_document_states(document: dict[str, Any]) -> None:
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
