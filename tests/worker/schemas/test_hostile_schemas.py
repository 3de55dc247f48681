"""Schemas of strangers: none is judged for long, and none at the cost of what else runs on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import reduce
from typing import Any

import pytest

from deputize.shared.errors import ErrorType, Misconfigured, ToolError
from deputize.worker.schemas.arguments import MAX_OVERRUNS, ArgumentSchema
from deputize.worker.schemas.pool import ValidatorPool
from deputize.worker.toolkit.schema_tool import SchemaTool
from deputize.worker.tools.base import Effect, ToolResult
from deputize.worker.tools.context import ToolContext
from tests.lag import lag_probe
from tests.toolbench import Toolbench

JSON = dict[str, Any]
pytestmark = pytest.mark.requirement("P-10")


class Sample(SchemaTool):
    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        return ToolResult(str(params))


def referring(levels: int, form: str = "allOf") -> JSON:
    """Definitions of which each refers to the next one twice."""
    defs = {f"d{n}": {"unevaluatedProperties": False, form: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"minProperties": 5}}}


def nested(key: str, levels: int) -> JSON:
    return reduce(lambda inner, _: {key: [inner] if key == "allOf" else inner}, range(levels), {})


TREE: JSON = {
    "properties": {"tree": {"$ref": "#/$defs/node"}},
    "$defs": {"node": {"allOf": [{"properties": {"x": {"$ref": "#/$defs/node"}}, "minProperties": 0}] * 2}},
}
A_TREE: JSON = reduce(lambda inner, _: {"x": inner}, range(28), {})
NOT_DECLARED: dict[str, JSON] = {
    "26 levels of allOf": referring(26),
    "26 levels of anyOf": referring(26, "anyOf"),
    "2000 levels of references": referring(2000),
    "not, 300 deep": nested("not", 300),
    "allOf, 300 deep": nested("allOf", 300),
    "a list of 500,000 choices": {"properties": {"a": {"enum": list(range(500_000))}}},
    "9,000 parameters with choices": {"properties": {f"p{n}": {"enum": [n]} for n in range(9000)}},
    "a description of a megabyte": {"description": "x" * 1_000_000},
}
A: JSON = {"$defs": {"a": {}}}
NOT_JUDGED: dict[str, tuple[JSON, JSON]] = {
    "nested quantifiers": ({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 41 + "!"}),
    "alternatives that overlap": ({"properties": {"a": {"pattern": "^(a|a)*$"}}}, {"a": "a" * 41 + "!"}),
    "names of parameters": ({"patternProperties": {"^(a+)+$": {}}}, {"a" * 41 + "!": 1}),
    "names, one by one": ({"propertyNames": {"pattern": "^(x?a+)+$"}, "$ref": "#/$defs/a", **A}, {"a" * 41 + "!": 1}),
    "different ones of many": (
        {"properties": {"a": {"uniqueItems": True}}},
        {"a": [{"x": number} for number in range(20_000)]},
    ),
    "a tree, each level twice": (TREE, {"tree": A_TREE}),
    "unevaluated, level by level": (
        {**referring(11, "anyOf"), "unevaluatedProperties": False},
        {f"p{number}": number for number in range(1000)},
    ),
}


@pytest.fixture
async def validators() -> AsyncIterator[ValidatorPool]:
    async with ValidatorPool(keep=True, seconds=0.3) as pool:
        yield pool


def context(desk: Toolbench, validators: ValidatorPool) -> ToolContext:
    return ToolContext("dlg_01k00000000000000000000000", "c", desk.files, desk.sandbox, validators=validators)


async def sample(schema: JSON, validators: ValidatorPool) -> Sample:
    return Sample("sample", "", await ArgumentSchema.untrusted("sample", schema, validators), effect=Effect.PURE)


@pytest.mark.parametrize("schema", NOT_DECLARED.values(), ids=NOT_DECLARED)
async def test_a_schema_that_nobody_can_judge_is_refused_when_it_is_declared(
    schema: JSON, validators: ValidatorPool
) -> None:
    async with lag_probe() as lag:
        with pytest.raises(Misconfigured, match="the parameters of tool 'sample' are not a valid JSON Schema: "):
            await sample(schema, validators)
    assert lag.longest < 1
    with pytest.raises(Misconfigured):
        ArgumentSchema.trusted("sample", schema)


@pytest.mark.parametrize(("schema", "arguments"), NOT_JUDGED.values(), ids=NOT_JUDGED)
async def test_arguments_that_take_for_ever_are_an_answer_while_the_loop_goes_on(
    schema: JSON, arguments: JSON, validators: ValidatorPool, bare_desk: Toolbench
) -> None:
    tool = await sample(schema, validators)
    async with lag_probe() as lag:
        with pytest.raises(
            ToolError, match=r"cannot be validated against its schema within 0\.3 seconds\. Use other, shorter ones"
        ) as caught:
            await tool.accept(context(bare_desk, validators), arguments)
    assert caught.value.type is ErrorType.INVALID_TOOL_PARAMS
    assert lag.longest < 1


async def test_the_same_schema_judges_what_is_easily_judged(validators: ValidatorPool, bare_desk: Toolbench) -> None:
    tool = await sample({"properties": {"a": {"pattern": "^(a+)+$"}}}, validators)
    ctx = context(bare_desk, validators)
    assert await tool.accept(ctx, {"a": "aaa"}) == {"a": "aaa"}
    with pytest.raises(ToolError, match=r"invalid arguments for sample: a: 'b' does not match .* Known parameters: a"):
        await tool.accept(ctx, {"a": "b"})
    with pytest.raises(ToolError, match="'b' was unexpected"):
        await tool.accept(ctx, {"b": "aaa"})


async def test_a_tool_that_cannot_be_judged_again_and_again_is_given_up(
    validators: ValidatorPool, bare_desk: Toolbench
) -> None:
    tool = await sample({"properties": {"a": {"pattern": "^(a+)+$"}}}, validators)
    ctx = context(bare_desk, validators)
    for _ in range(MAX_OVERRUNS):
        with pytest.raises(ToolError):
            await tool.accept(ctx, {"a": "a" * 41 + "!"})
    await validators.__aexit__()
    with pytest.raises(ToolError, match="Continue without it"):
        await tool.accept(ctx, {"a": "aaa"})
    assert not any(lane.is_running for lane in validators.lanes)


async def test_slow_judgements_of_many_runs_hold_up_no_quick_one(
    validators: ValidatorPool, bare_desk: Toolbench
) -> None:
    ctx = context(bare_desk, validators)
    slow = await sample({"properties": {"a": {"pattern": "^(a+)+$"}}}, validators)
    quick = await sample({"properties": {"a": {"pattern": "^[a-z]+$"}}}, validators)
    judging = [asyncio.create_task(slow.accept(ctx, {"a": "a" * 41 + "!"})) for _ in range(10)]
    await asyncio.sleep(0)
    assert await quick.accept(ctx, {"a": "aaa"}) == {"a": "aaa"}
    assert not any(each.done() for each in judging[5:])
    for each in judging:
        each.cancel()
    await asyncio.wait(judging)


async def test_a_judgement_that_is_cancelled_leaves_no_process_and_the_next_one_is_made(
    validators: ValidatorPool, bare_desk: Toolbench
) -> None:
    ctx = context(bare_desk, validators)
    tool = await sample({"properties": {"a": {"pattern": "^(a+)+$"}}}, validators)
    judging = asyncio.create_task(tool.accept(ctx, {"a": "a" * 41 + "!"}))
    await asyncio.wait([judging], timeout=0.05)
    judging.cancel()
    await asyncio.wait([judging])
    assert await tool.accept(ctx, {"a": "aaa"}) == {"a": "aaa"}


async def test_a_judge_that_is_killed_is_replaced(validators: ValidatorPool, bare_desk: Toolbench) -> None:
    ctx = context(bare_desk, validators)
    tool = await sample({"properties": {"a": {"pattern": "b"}}}, validators)
    for lane in validators.lanes:
        await lane.close()
    assert await tool.accept(ctx, {"a": "b"}) == {"a": "b"}
