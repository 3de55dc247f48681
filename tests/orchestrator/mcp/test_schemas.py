"""The schemas of the tools: short, as a client's model reads all of them, and true of what the service takes."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from deputize.orchestrator.mcp.schemas import input_schema
from deputize.orchestrator.mcp.tools import TOOLS
from deputize.shared.request import DelegationRequest
from tests.orchestrator.mcp.clients import connected

MAX_CHARACTERS = 20_000
REQUESTS: list[dict[str, Any]] = [
    {"task": "x"},
    {"task": "x", "workspace": "/p", "verify": "make test"},
    {"task": "x", "workspace": {"kind": "directory", "path": "/p", "exclude": ["*.log"]}, "verify": ["make test"]},
    {"task": "x", "workspace": {"kind": "git", "url": "https://h/r", "ref": "main"}, "deliver": {"branch": "fix"}},
    {"task": "x", "verify": [{"kind": "command", "run": "make", "files": {"t.py": ""}}, {"kind": "file", "path": "a"}]},
    {"task": "x", "limits": {"maxTurns": 3, "maxCostUsd": 0.5}, "retry": {"attempts": 2, "on": ["timeout"]}},
    {"task": "x", "outputSchema": {"type": "object"}, "after": [{"id": "dlg_1", "require": "verified"}]},
    {"task": "x", "webhook": {"url": "https://h", "events": ["delegation.finished"]}, "labels": {"a": "b"}},
]


async def test_all_tools_together_take_little_of_a_models_context(url: str) -> None:
    async with connected("http", url) as client:
        listed = await client.list_tools()
    assert len(json.dumps(json.loads(listed.model_dump_json(by_alias=True, exclude_none=True)))) <= MAX_CHARACTERS


async def test_each_argument_has_a_description_and_no_reference(url: str) -> None:
    async with connected("http", url) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    for tool in tools.values():
        assert tool.description
        assert "$ref" not in str(tool.input_schema) + str(tool.output_schema)
        for name, field in tool.input_schema["properties"].items():
            assert field["description"], (tool.name, name)
            assert "title" not in field, (tool.name, name)
    for name, spec in TOOLS.items():
        if spec.arguments is not DelegationRequest:
            assert {*tools[name].input_schema["properties"]} == {*input_schema(spec.arguments)["properties"]}
    properties = tools["delegate"].input_schema["properties"]
    assert {field.alias for field in DelegationRequest.model_fields.values()} == set(properties)
    *objects, text = properties["workspace"]["anyOf"]
    assert (text, properties["verify"]["type"]) == ({"type": "string"}, ["array", "string"])
    kinds = {kind["properties"]["kind"]["const"] for kind in objects}
    assert kinds == {"empty", "directory", "archive", "git"}


@pytest.mark.parametrize("request_", REQUESTS)
async def test_they_accept_what_the_service_takes(url: str, request_: dict[str, Any]) -> None:
    DelegationRequest.model_validate(request_)
    async with connected("http", url) as client:
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
    for name, arguments in (
        ("delegate", request_),
        ("delegate_start", request_),
        ("delegate_many", {"requests": [request_], "wait": False}),
    ):
        jsonschema_rs.validate(schemas[name], arguments)
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schemas["delegate_start"], {})


async def test_the_arguments_of_one_tool_hold_for_those_that_refer_to_it(url: str) -> None:
    """A request is described once."""
    async with connected("http", url) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    describing = [name for name, tool in tools.items() if "expectedOutcome" in json.dumps(tool.input_schema)]
    assert describing == ["delegate"]
    assert "`delegate`" in json.dumps(tools["delegate_start"].input_schema)
    assert "`delegate`" in json.dumps(tools["delegate_many"].input_schema)
