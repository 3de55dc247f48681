"""The schema of a typed output: what is accepted, and how its data comes back by HTTP, Python and the command line."""

from __future__ import annotations

import asyncio
import json
import pickle
import time
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from pydantic import BaseModel, Field, PositiveInt, ValidationError

from deputize import DelegationFailed, DelegationRequest, Orchestrator, SyncOrchestrator
from deputize.orchestrator.request_checks import check_requests
from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult
from deputize.shared.errors import Conflict, Invalid
from deputize.shared.output_schema import MAX_BYTES, check_output_schema
from tests.fake_model import Turn, call, text
from tests.orchestrator.cli.following import run
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import settings
from tests.orchestrator.whole import Whole
from tests.waiting import until


def problem(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.json()


def nested(levels: int) -> dict[str, Any]:
    return reduce(lambda inner, _: {"properties": {"a": inner}}, range(levels), {})


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def names(pattern: str) -> dict[str, Any]:
    return {"patternProperties": {pattern: {}}}


def padded(size: int) -> dict[str, Any]:
    """A schema of so many bytes."""
    schema = {"type": "string", "description": ""}
    return schema | {"description": "x" * (size - len(json.dumps(schema, separators=(",", ":"))))}


DOUBLED = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(26)} | {"d26": {}}
REFUSED = {
    "10,000 properties": (of(**{f"p{n}": {"type": "integer"} for n in range(10_000)}), "", "more than 10000 parts"),
    "1,000 deep": (nested(1000), "", "nested more than 100 deep"),
    "1,000 lists deep": ({"enum": reduce(lambda inner, _: [inner], range(1000), [])}, "", "more than 100 deep"),
    "an outside reference": (
        of(a={"items": {"$ref": "http://127.0.0.1:9/s"}}),
        "/properties/a/items/$ref",
        "nothing is fetched for the reference 'http://127.0.0.1:9/s'",
    ),
    "a file": (of(**{"a/b~": {"$ref": "file:///etc/passwd"}}), "/properties/a~1b~0/$ref", "nothing is fetched"),
    "nothing": (of(a={"$ref": "#/$defs/gone"}), "/properties/a/$ref", "leads to nothing"),
    "itself": ({"$ref": "#"}, "", "leads back to itself without end"),
    "itself inside": (of(a={"$ref": "#/properties/a"}), "/properties/a", "leads back to itself without end"),
    "references that double": ({"$ref": "#/$defs/d0", "$defs": DOUBLED}, "", "subschemas; use fewer in allOf"),
    "a dynamic one": (of(a={"$dynamicRef": "#a"}), "/properties/a/$dynamicRef", "is not supported; use $ref"),
    "an inner address": (of(a={"$id": "https://example.org/"}), "/properties/a/$id", "an inner $id is not supported"),
    "no pattern": (of(a={"pattern": "("}), "/properties/a/pattern", "not a valid regular expression"),
    "a huge pattern": (of(a={"pattern": "(?=a)" * 300}), "/properties/a/pattern", "too large; simplify it"),
    "a slow pattern of names": (names("(?=a)"), "/patternProperties/(?=a)", "uses look-around"),
    "a large pattern of names": (
        names("(a{1000}){50}"),
        "/patternProperties/(a{1000}){50}",
        "is too large; simplify it",
    ),
    "a large pattern of names with a backslash before a digit": (
        names(r"\\1(a{1000}){50}"),
        r"/patternProperties/\\1(a{1000}){50}",
        "is too large; simplify it",
    ),
    "a group of names": (names(r"(a)\\\1"), r"/patternProperties/(a)\\\1", "a reference to a group"),
    "no pattern of names": (names("("), "/patternProperties/(", "is not a valid regular expression"),
    "no type": (of(a={"type": "objekt"}), "/properties/a/type", '"objekt" is not'),
    "no list": (of(a={"required": "b"}), "/properties/a/required", "is not"),
    "65 KiB": (padded(65 * 1024), "", "66,560 bytes of JSON; the cap is 65,536"),
    "one byte too many": (padded(MAX_BYTES + 1), "", "65,537 bytes of JSON"),
    "half of a character": (of(a={"const": "\ud800"}), "", "half of a character"),
    "too deep with the argument around it": ({"items": nested(49)}, "", "nested more than 100 deep"),
}
SLOW = {
    "a pattern with nested repetitions": {"type": "string", "pattern": "^(?=a)(a|a)*$"},
    "200 patterns": of(**{f"p{n}": {"pattern": f"(a|b|c|d){{1,{200 + n}}}x{n}" * 4} for n in range(200)}),
    "4,900 properties": of(**{f"p{n}": {} for n in range(4900)}),
    "900 references": {
        "$ref": "#/$defs/d0",
        "$defs": {f"d{n}": of(a={"$ref": f"#/$defs/d{n * 7 % 900}"}) for n in range(900)},
    },
    "the largest": padded(MAX_BYTES),
    "a tree": of(left={"$ref": "#"}, right={"$ref": "#"}),
    "nothing in it": {},
}


@pytest.mark.parametrize(("schema", "pointer", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_schema_is_refused_at_once_with_the_place_and_the_reason(
    schema: dict[str, Any], pointer: str, reason: str
) -> None:
    begun = time.process_time()
    with pytest.raises(Invalid) as refused:
        check_output_schema(schema)
    assert time.process_time() - begun < 1
    (error,) = refused.value.errors
    assert error["pointer"] == f"/outputSchema{pointer}"
    assert reason in error["detail"]


@pytest.mark.parametrize("schema", SLOW.values(), ids=SLOW)
def test_a_large_schema_is_accepted_in_bounded_time(schema: dict[str, Any]) -> None:
    begun = time.process_time()
    check_output_schema(schema)
    assert time.process_time() - begun < 1


def test_the_requests_of_a_batch_with_one_schema_are_checked_once() -> None:
    schema = SLOW["4,900 properties"] | {"title": "of a batch"}
    begun = time.process_time()
    check_requests([DelegationRequest(task="t", output_schema=schema)], [], settings(), batch=False)
    one = time.process_time() - begun
    check_requests([DelegationRequest(task="t", output_schema=schema) for _ in range(20)], [], settings(), batch=True)
    assert time.process_time() - begun < 15 * one


async def test_http_refuses_a_schema_with_its_pointer_also_in_a_batch(real: httpx2.AsyncClient) -> None:
    field = {"outputSchema": of(a={"$ref": "http://127.0.0.1:9/s"})}
    one = problem(await real.post("/v1/delegations", json={"task": "t", **field}))
    assert (one["status"], one["errors"][0]["pointer"]) == (422, "/outputSchema/properties/a/$ref")
    batch = {"requests": [{"task": "t"}, {"task": "t", **field}]}
    many = problem(await real.post("/v1/delegations:batch", json=batch))
    assert (many["status"], many["errors"][0]["pointer"]) == (422, "/requests/1/outputSchema/properties/a/$ref")
    for wrong in ([], "x", 3, True):
        answer = problem(await real.post("/v1/delegations", json={"task": "t", "outputSchema": wrong}))
        assert (answer["status"], answer["errors"][0]["pointer"]) == (422, "/outputSchema")
    for levels, status, pointers in ((150, 422, ["/outputSchema"]), (1000, 400, [])):  # no parser reads more than 200
        deep = '{"task": "t", "outputSchema": ' + '{"not": ' * levels + "{}" + "}" * (levels + 1)
        answer = problem(await real.post("/v1/delegations", content=deep, headers={"Content-Type": "application/json"}))
        assert (answer["status"], [error["pointer"] for error in answer["errors"]]) == (status, pointers)
    assert (await real.get("/v1/delegations")).json()["items"] == []


async def test_one_that_is_cancelled_before_its_start_lacks_its_output(real: httpx2.AsyncClient) -> None:
    for schema, status in ((of(), "missing"), (None, None)):
        id = (await real.post("/v1/delegations", json={"task": "t", "outputSchema": schema})).json()["id"]
        await real.post(f"/v1/delegations/{id}/cancel")
        result = (await real.get(f"/v1/delegations/{id}")).json()["result"]
        assert (result["output"], result["outputStatus"]) == (None, status)


# Python


class Line(BaseModel):
    sku: str
    amount: PositiveInt = 1


class Invoice(BaseModel):
    """An invoice."""

    total: float = Field(alias="sum")
    lines: list[Line] = []
    kind: Literal["paid", "open"] = "open"


def result_of(output: Any, status: Literal["valid", "missing", "invalid"] | None = "valid") -> ToolAgentResult:
    return ToolAgentResult(
        delegation_id="dlg_1",
        status=Status.SUCCEEDED,
        termination_reason=TerminationReason.COMPLETED,
        output=output,
        output_status=status,
    )


def typed(kind: type[Any], **fields: Any) -> DelegationRequest:
    return DelegationRequest.model_validate({"task": "t", "output_schema": kind} | fields)


def test_a_type_stands_for_its_schema() -> None:
    assert typed(Invoice).output_schema == Invoice.model_json_schema()
    assert typed(list[int]).output_schema == {
        "type": "array",
        "items": {"type": "integer"},
    }
    check_output_schema(Invoice.model_json_schema())


def test_an_output_is_an_instance_of_its_type() -> None:
    invoice = result_of({"sum": 2, "lines": [{"sku": "a"}]}).output_as(Invoice)
    assert invoice == Invoice(sum=2, lines=[Line(sku="a")])
    assert result_of([1, 2]).output_as(list[int]) == [1, 2]


@pytest.mark.parametrize("status", ["missing", "invalid", None])
def test_without_a_valid_output_there_is_no_instance(status: Any) -> None:
    reason = f"its output is {status}" if status else "there is no summary"
    with pytest.raises(DelegationFailed, match=reason) as failed:
        result_of(None, status).output_as(Invoice)
    assert failed.value.result.output_status == status


def test_what_only_the_type_demands_is_its_own_error() -> None:
    with pytest.raises(DelegationFailed, match="not for the type: Input should be a valid dict") as failed:
        result_of("not a path").output_as(dict[str, int])
    assert isinstance(failed.value.__cause__, ValidationError)
    assert failed.value.result.output == "not a path"
    assert str(pickle.loads(pickle.dumps(failed.value))) == str(failed.value)


async def answer(service: FakeService, number: int = 1) -> None:
    await until(lambda: service.following == number)
    for id in service.runs:
        service.finish(id, output={"sum": 3}, output_status="valid")


async def test_delegate_returns_an_instance(url: str, service: FakeService) -> None:
    async with Orchestrator(url=url) as orchestrator:
        invoice, _ = await asyncio.gather(orchestrator.delegate("add up", output=Invoice), answer(service))
    assert (type(invoice), invoice.total) == (Invoice, 3)
    ((_, delegation),) = service.runs.items()
    assert delegation.request.output_schema == Invoice.model_json_schema()


async def test_a_script_gets_an_instance_without_await(url: str, service: FakeService) -> None:
    def script() -> Invoice:
        with SyncOrchestrator(url=url) as orchestrator:
            return orchestrator.delegate("add up", output=Invoice)

    invoice, _ = await asyncio.gather(asyncio.to_thread(script), answer(service))
    assert invoice.total == 3


async def test_several_have_the_schema_of_a_type_and_each_result_its_instance(url: str, service: FakeService) -> None:
    async with Orchestrator(url=url) as orchestrator:
        results, _ = await asyncio.gather(
            orchestrator.gather(["one", "two"], output_schema=Invoice), answer(service, 2)
        )
    assert [result.output_as(Invoice).total for result in results] == [3, 3]


# A continued delegation


async def test_a_continued_delegation_has_a_schema_of_its_own(whole: Whole) -> None:
    turns = Turn([call("submit_result", sum=1)]), Turn([call("submit_result", result=[7])]), Turn([text("And 8.")])
    first = await whole.first(*turns, output_schema=Invoice)
    assert (first.output, first.output_status) == ({"sum": 1}, "valid")
    again = typed(list[int], task="as a list", continues=first.delegation_id)
    second = await whole.finished((await whole.service.create(again)).delegation)
    assert (second.output, second.output_status, second.success) == ([7], "valid", True)
    words = DelegationRequest(task="and in words", continues=second.delegation_id)
    third = await whole.finished((await whole.service.create(words)).delegation)
    assert (third.output, third.output_status, third.summary) == (None, None, "And 8.")
    inherited = (await whole.service.continue_(second.delegation_id, "once more")).delegation
    assert inherited.request.output_schema == again.output_schema
    with pytest.raises(Conflict):
        await whole.service.continue_(inherited.id, "too early")


# The command line


async def test_the_output_goes_to_stdout_and_the_words_to_stderr(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(Invoice.model_json_schema()))

    def work(id: str) -> None:
        service.finish(id, summary="It is three.", output={"sum": 3, "lines": []}, output_status="valid")

    done = await run(url, service, "add up", "--no-workspace", "--output-schema", str(schema), then=work)
    assert (done.code, json.loads(done.out)) == (0, {"sum": 3, "lines": []})
    assert "It is three." in done.err
    ((id, delegation),) = service.runs.items()
    assert delegation.request.output_schema == Invoice.model_json_schema()
    shown = await deputize("show", id, DEPUTIZE_URL=url)
    assert '"sum": 3' in shown.out


async def test_an_output_that_is_missing_is_reported(url: str, service: FakeService, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text("{}")
    options = ("--no-workspace", "--output-schema", str(tmp_path / "schema.json"))
    done = await run(url, service, "t", *options, then=lambda id: service.finish(id, output_status="missing"))
    assert (done.code, done.out) == (0, "")
    assert "  output: missing" in done.err.splitlines()


@pytest.mark.parametrize(
    ("content", "reason"),
    [("[]", "is not a JSON object; a JSON Schema is"), ("{", "is not valid JSON"), (None, "cannot be read")],
)
async def test_a_file_that_is_no_schema_is_refused(url: str, tmp_path: Path, content: str | None, reason: str) -> None:
    path = tmp_path / "schema.json"
    if content is not None:
        path.write_text(content)
    done = await deputize("run", "t", "--no-workspace", "--output-schema", str(path), DEPUTIZE_URL=url)
    assert done.code == 2
    assert reason in " ".join(done.err.split())
