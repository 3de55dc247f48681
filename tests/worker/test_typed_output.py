"""Typed output: a run that was given a schema ends with valid data, or its result shows that there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.limits import Limits
from deputize.shared.request import AutomaticRetry, DelegationRequest
from deputize.shared.runs.keys import LEASES
from deputize.worker.task import carry_out
from tests.fake_model import FakeModel, Turn, refuse, text
from tests.fake_model import call as tool_use
from tests.runs.bench import Bench, call, say, script, talking
from tests.runs.nesting import by_task, children_of, delegate
from tests.worker.parents import run
from tests.worker.run_history import answered_once, history_of
from tests.worker.typed_output import HAND_IN, INVOICE, LOOK, VALID, facts

WRITE = call("write_file", path="a.txt", content="x")


async def test_the_run_ends_with_the_valid_call(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [WRITE], [say("All is added up."), HAND_IN], [say("never")])
    result = await bench.run(model=model, output_schema=INVOICE)
    assert facts(result) == ("completed", VALID, "valid")
    assert (result.success, result.summary, result.turn_count, result.tool_call_count) == (
        True,
        "All is added up.",
        2,
        2,
    )
    assert [step.tool_name for step in await bench.steps(result)] == ["write_file", "submit_result"]
    assert answered_once(await history_of(bench, result))


async def test_without_a_schema_there_is_neither_the_tool_nor_a_status(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [HAND_IN], [say("done")]))
    assert facts(result) == ("completed", None, None)
    assert "there is no tool 'submit_result'" in result.errors[0]


async def test_an_invalid_call_is_an_error_that_names_each_mistake_and_can_be_corrected(
    bench: Bench, tmp_path: Path
) -> None:
    wrong = call("submit_result", total="a lot", lines=[{"sku": "a"}, {"sku": 7}, {}], more=1)
    result = await bench.run(model=script(tmp_path, [wrong], [HAND_IN]), output_schema=INVOICE)
    assert facts(result) == ("completed", VALID, "valid")
    answer, _ = await bench.answers(result.delegation_id)
    for mistake in ("total: ", "lines/1/sku: 7 is not", 'lines/2: "sku" is a required', "('more' was unexpected)"):
        assert mistake in answer
    assert (result.failed_call_count, result.turn_count) == (1, 2)


async def test_of_several_calls_the_first_valid_one_counts_and_nothing_after_it_is_executed(
    bench: Bench, tmp_path: Path
) -> None:
    turn = [
        call("submit_result"),
        WRITE,
        HAND_IN,
        call("submit_result", total=1),
        {**WRITE, "arguments": {"path": "b"}},
    ]
    result = await bench.run(model=script(tmp_path, turn), output_schema=INVOICE)
    assert facts(result) == ("completed", VALID, "valid")
    assert result.files_modified == ["a.txt"]
    assert [bool(step.error) for step in await bench.steps(result)] == [True, False, False, True, True]
    assert answered_once(await history_of(bench, result))


async def test_an_answer_in_words_is_asked_once_to_be_handed_in(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [say("It is 12.5.")], [HAND_IN]), output_schema=INVOICE)
    assert facts(result) == ("completed", VALID, "valid")
    assert (result.summary, result.turn_count) == ("It is 12.5.", 2)
    (*_, asked, _, _) = await history_of(bench, result)
    assert 'type="no_output"' in asked["content"][0]["text"]


async def test_words_again_are_followed_by_a_turn_that_forces_the_call(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [say("It is 12.5.")], [say("I said 12.5.")], [HAND_IN], [say("never")])
    result = await bench.run(model=model, output_schema=INVOICE)
    assert facts(result) == ("completed", VALID, "valid")
    assert (result.success, result.summary, result.turn_count) == (True, "I said 12.5.", 2)


@pytest.mark.parametrize(
    ("last", "status"),
    [
        ([HAND_IN], "valid"),
        ([call("submit_result", total="?")], "invalid"),
        ([say("no")], "missing"),
        ([WRITE], "missing"),
    ],
    ids=["valid", "invalid", "words", "another tool"],
)
@pytest.mark.parametrize(
    ("limits", "reason", "turns"),
    [({"max_turns": 2}, "max_turns", [[LOOK], [LOOK]]), ({"max_tool_calls": 1}, "max_tool_calls", [[LOOK, LOOK]])],
    ids=["turns", "calls"],
)
async def test_a_limit_leaves_one_turn_in_which_only_the_output_can_be_handed_in(
    bench: Bench, tmp_path: Path, limits: dict[str, int], reason: str, turns: list[Any], last: Any, status: str
) -> None:
    model = script(tmp_path, *turns, last, [say("never")])
    result = await bench.run(model=model, output_schema=INVOICE, limits=limits)
    assert facts(result) == (reason, VALID if status == "valid" else None, status)
    assert (result.success, result.files_modified) == (False, [])
    assert result.turn_count == len(turns)
    assert result.tool_call_count <= limits.get("max_tool_calls", 50)
    assert answered_once(await history_of(bench, result))


async def test_the_call_that_hands_in_is_never_the_one_too_many(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(
        model=script(tmp_path, [HAND_IN]), output_schema=INVOICE, limits={"max_tool_calls": 0}, tools=[]
    )
    assert facts(result) == ("completed", VALID, "valid")
    assert result.tool_call_count == 0


ANY_TOP = {
    "a list": ({"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}, [1, 2], ["x"]),
    "a text": ({"type": "string", "minLength": 2}, "ok", "x"),
    "null or a number": ({"anyOf": [{"type": "null"}, {"type": "number"}]}, None, "x"),
    "a tree": (
        {"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"next": {"$ref": "#/$defs/t"}}}}},
        {"next": {"next": {}}},
        {"next": {"next": 1}},
    ),
    "itself": (
        {"properties": {"next": {"$ref": "#"}}, "required": ["a"]},
        {"a": 1, "next": {"a": 2}},
        {"a": 1, "next": {}},
    ),
    "a choice of objects": (
        {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"a": 1},
        {"a": 1, "b": 1},
    ),
    "a name that models refuse": (
        {"type": "object", "properties": {"größe": {"type": "integer"}}},
        {"größe": 1},
        {"größe": ""},
    ),
}


@pytest.mark.parametrize(("schema", "valid", "invalid"), ANY_TOP.values(), ids=ANY_TOP)
async def test_what_is_no_plain_object_is_one_argument_and_the_output_is_without_it(
    bench: Bench, tmp_path: Path, schema: dict[str, Any], valid: Any, invalid: Any
) -> None:
    model = script(tmp_path, [call("submit_result", result=invalid)], [call("submit_result", result=valid)])
    result = await bench.run(model=model, output_schema=schema)
    assert facts(result) == ("completed", valid, "valid")
    assert result.failed_call_count == 1


@pytest.mark.parametrize("mode", ["readOnly", "ask", "sandboxed", "auto"])
async def test_handing_in_needs_no_permission_and_no_name_among_the_tools(
    bench: Bench, tmp_path: Path, mode: str
) -> None:
    model = script(tmp_path, [HAND_IN])
    result = await bench.run(model=model, output_schema=INVOICE, approval_mode=mode, tools=["read_file"])
    assert facts(result) == ("completed", VALID, "valid")
    assert result.denied_call_count == 0


async def test_a_try_after_a_failure_begins_without_the_output_of_the_one_before(bench: Bench, tmp_path: Path) -> None:
    request = DelegationRequest(
        task="do it",
        model=script(tmp_path, [LOOK], [HAND_IN]),
        output_schema=INVOICE,
        limits=Limits(max_turns=1),
        retry=AutomaticRetry(attempts=1, on=["max_turns"]),
    )
    id = await bench.accept(request)
    assert await carry_out(bench.services, id) is None
    await bench.store.redis.zadd(LEASES, {id: 1})
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert facts(result) == ("max_turns", VALID, "valid")
    assert (result.attempts, [step.tool_name for step in await bench.steps(id)]) == (2, ["glob", "submit_result"] * 2)


CALL = "<tool_call>\n<name>submit_result</name>\n<params>\n<total><![CDATA[{}]]></total>\n</params>\n</tool_call>"


async def test_calls_as_xml_hand_in_as_well(redis_url: str, tmp_path: Path) -> None:
    turns = Turn([text(CALL.format("much"))]), Turn([text("It is 7.")]), Turn([text(CALL.format("7"))])
    async with talking(redis_url, tmp_path / "home", *turns) as (bench, fake):
        result = await bench.run(output_schema=INVOICE, tool_call_style="xml")
        limited = await bench.run(output_schema=INVOICE, tool_call_style="xml", limits={"max_turns": 2})
    assert facts(result) == ("completed", {"total": 7}, "valid")
    assert facts(limited) == ("max_turns", {"total": 7}, "valid")
    assert all("tool_choice" not in asked.body for asked in fake.journal)


async def ended(redis_url: str, folder: Path, *turns: Turn, **fields: Any) -> tuple[ToolAgentResult, FakeModel]:
    async with talking(redis_url, folder / "home", *turns) as (bench, fake):
        return await bench.run(output_schema=INVOICE, **fields), fake


async def test_the_last_turn_forces_the_tool_and_does_not_think(redis_url: str, tmp_path: Path) -> None:
    turns = Turn([tool_use("glob", pattern="*")]), Turn([tool_use("submit_result", total=1)])
    result, fake = await ended(redis_url, tmp_path, *turns, limits={"max_turns": 1})
    assert facts(result) == ("max_turns", {"total": 1}, "valid")
    first, last = (asked.body for asked in fake.journal)
    assert (first.get("tool_choice"), last["tool_choice"]) == (None, {"type": "tool", "name": "submit_result"})
    assert (first["thinking"]["type"], last["thinking"]["type"]) == ("adaptive", "disabled")
    assert first["tools"] == last["tools"]
    assert json.dumps(INVOICE["properties"]) in json.dumps([tool["input_schema"] for tool in last["tools"]])


async def test_an_endpoint_that_cannot_force_a_tool_is_asked_in_words(redis_url: str, tmp_path: Path) -> None:
    refused = refuse(400, error={"type": "invalid_request_error", "message": "tool_choice: tool is not supported"})
    turns = Turn([tool_use("glob", pattern="*")]), Turn([tool_use("submit_result", total=1)], faults=[refused])
    result, fake = await ended(redis_url, tmp_path, *turns, limits={"max_turns": 1})
    assert facts(result) == ("max_turns", {"total": 1}, "valid")
    *_, last = (asked.body for asked in fake.journal)
    assert "tool_choice" not in last
    assert last["thinking"]["type"] == "adaptive"


async def test_a_child_delegation_hands_in_nothing_for_its_parent(busy: Bench, tmp_path: Path) -> None:
    wrong = delegate("child", tools=["submit_result"])
    model = by_task(tmp_path, parent=[[wrong], [delegate("child")], [HAND_IN]], child=[[HAND_IN], [say("I looked.")]])
    result = await busy.result(await run(busy, model=model, output_schema=INVOICE))
    assert facts(result) == ("completed", VALID, "valid")
    (child,) = await children_of(busy.store, result.delegation_id)
    assert child.result is not None
    assert "submit_result" not in (child.request.tools or [])
    assert facts(child.result) == ("completed", None, None)
    assert "'submit_result' is not a tool of this run" in result.errors[0]
