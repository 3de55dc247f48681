"""A run whose calls travel as XML does what a native one does, and leaves the same traces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.events import Envelope, Replied, RunFinished, StepCompleted, TextDelta
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import channel
from deputize.worker.models import close_models
from deputize.worker.task import carry_out
from deputize.worker.xml_calls.instruction import format_tool_call
from tests.fake_model import FakeModel, Turn, text, thinking
from tests.runs.bench import Bench, call, open_bench, say, script

WRITE = call("write_file", path="a.txt", content="one <two> & ]]> three\n")
READ = call("read_file", path="a.txt")
BLOCK = call("bash", command="echo $$ >> a.txt; exec sleep 1000")


def spelled(block: dict[str, Any]) -> dict[str, Any]:
    """The block with its call as words."""
    return say(format_tool_call(block["call"], block["arguments"]) + "\n") if "call" in block else block


async def run_both(bench: Bench, folder: Path, *turns: Any, **fields: Any) -> tuple[ToolAgentResult, ToolAgentResult]:
    """The same turns carried out by a native run and by one in XML."""
    summary = fields.pop("summary", "Nothing more.")
    native = await bench.run(model=script(folder, *turns, summary=summary), **fields)
    in_words = [[spelled(block) for block in turn] for turn in turns]
    model = script(folder, *in_words, summary=summary)
    return native, await bench.run(model=model, tool_call_style="xml", **fields)


async def traces(bench: Bench, result: ToolAgentResult) -> dict[str, Any]:
    """All that is known of a run but for times, ids, costs, and in which order calls side by side ended."""
    events = [envelope.event for envelope in await bench.events(result.delegation_id)]
    steps = [event.step for event in events if isinstance(event, StepCompleted)]
    return {
        "types": sorted(event.type for event in events),
        "steps": sorted((step.model_dump(exclude={"id", "timestamp"}) for step in steps), key=str),
        "replies": [
            (event.turn, event.text.strip(), event.stop_reason, [(c.name, c.arguments) for c in event.tool_calls])
            for event in events
            if isinstance(event, Replied)
        ],
        "result": result.model_dump(exclude={"delegation_id", "details", "execution_time_ms", "usage"}),
        "patch": await bench.store.patch(result.delegation_id),
    }


async def history_of(bench: Bench, id: str) -> list[dict[str, Any]]:
    return [json.loads(entry) for entry in (await bench.store.conversation(id))[0]]


async def test_reading_writing_commands_and_errors_are_the_same(bench: Bench, tmp_path: Path) -> None:
    turns = [
        [say("I look first."), READ],
        [WRITE, call("bash", command="cat a.txt; echo two > b.txt", timeout=30)],
        [READ, call("grep", pattern="t", ignore_case=True, max_results=5), call("glob", pattern="*")],
        [call("edit_file", path="a.txt", old_string="  no  ", new_string="x"), call("no_such_tool", a="b")],
        [call("edit_file", path="a.txt", old_string="one <two> & ", new_string="<![CDATA[", replace_all=True)],
        [say("Two files were made.")],
    ]
    native, in_xml = await run_both(bench, tmp_path, *turns)
    assert (in_xml.success, in_xml.tool_call_count, in_xml.files_modified) == (True, 9, ["a.txt", "b.txt"])
    assert len(in_xml.errors) == 3
    assert await traces(bench, in_xml) == await traces(bench, native)


async def test_a_limit_and_its_summary_are_the_same(bench: Bench, tmp_path: Path) -> None:
    calls = [call("write_file", path=f"{n}.txt", content="x") for n in range(5)]
    fields: dict[str, Any] = {"limits": {"max_tool_calls": 3}, "summary": "Three of five."}
    native, in_xml = await run_both(bench, tmp_path, calls, [say("never")], **fields)
    assert (in_xml.termination_reason, in_xml.summary) == ("max_tool_calls", "Three of five.")
    assert await traces(bench, in_xml) == await traces(bench, native)


async def test_a_budget_of_tokens_holds(bench: Bench, tmp_path: Path) -> None:
    turns = [
        {"blocks": [spelled(call("glob", pattern=str(n)))], "usage": {"input": 900, "output": 100}} for n in range(20)
    ]
    result = await bench.run(model=script(tmp_path, *turns), tool_call_style="xml", limits={"max_tokens": 12_000})
    assert result.termination_reason == "budget"
    assert 0 < result.usage.total <= 12_000


async def test_a_call_that_is_cut_is_answered_and_made_again(bench: Bench, tmp_path: Path) -> None:
    whole = format_tool_call(WRITE["call"], WRITE["arguments"])
    cut = {"blocks": [say(f"I write. {whole[:-40]}")], "stop": "max_tokens"}
    result = await bench.run(model=script(tmp_path, cut, [say(whole)], [say("done")]), tool_call_style="xml")
    assert (result.termination_reason, result.turn_count, result.files_modified) == ("completed", 3, ["a.txt"])
    assert len(result.errors) == 1
    assert "is not complete" in result.errors[0]
    answer = (await history_of(bench, result.delegation_id))[2]["content"][0]
    assert "<content><![CDATA[your_content_here]]></content>" in answer["content"]


@pytest.mark.requirement("P-21")
async def test_a_long_conversation_goes_on_from_a_summary(bench: Bench, tmp_path: Path) -> None:
    write = spelled(call("write_file", path="a.txt", content="word " * 400))
    fresh = {"match": {"contains": "Work so far"}, "turns": [[spelled(READ)], [say("all done")]]}
    model = script(
        tmp_path, [write], [spelled(READ)], [say("never")], summary=f"NOTES: no {spelled(READ)['text']}here."
    )
    path = Path(model.partition(":")[2])
    path.write_text(json.dumps({"rules": [fresh, *json.loads(path.read_text())["rules"]], "label": "", "window": 1600}))
    result = await bench.run(model=model, tool_call_style="xml")
    assert (result.termination_reason, result.summary, result.tool_call_count) == ("completed", "all done", 3)
    begun = (await history_of(bench, result.delegation_id))[6]["content"][0]["text"]
    assert "NOTES: no \nhere." in begun


async def test_watchers_see_the_words_and_no_xml(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [say("I write.\n"), spelled(WRITE)], [say("It is done.")])
    id = await bench.accept(DelegationRequest(task="do it", model=model, tool_call_style="xml"))
    deltas: dict[int, str] = {}
    async with bench.bus.listen(channel(id)) as inbox, asyncio.timeout(60):
        await carry_out(bench.services, id)
        while not isinstance(event := Envelope.from_json(await inbox.get() or "").event, RunFinished):
            if isinstance(event, TextDelta):
                deltas[event.turn] = deltas.get(event.turn, "") + event.text
    assert deltas == {1: "I write.", 2: "It is done."}


@asynccontextmanager
async def real_bench(fake: FakeModel, redis_url: str, home: Path) -> AsyncIterator[Bench]:
    endpoint = fake.variables
    async with open_bench(redis_url, home, model_endpoint=endpoint, model="claude-sonnet-5-5") as bench:
        yield bench


async def test_a_run_that_lost_its_worker_goes_on_with_the_same_words(redis_url: str, tmp_path: Path) -> None:
    """Over HTTP: the endpoint takes back its own reply only if it, and all before it, is as it was."""
    bare = "<tool_call><name>write_file</name><params><path>a.txt</path><content>a & b</content></params></tool_call>"
    turns = [[thinking("hm"), text(f"First. {bare}")], [text(spelled(BLOCK)["text"])], [text("Done.")]]
    async with (
        FakeModel([Turn(turn) for turn in turns]) as fake,
        real_bench(fake, redis_url, tmp_path / "home") as bench,
    ):
        id = await bench.accept(DelegationRequest(task="do it", tool_call_style="xml"))
        file = bench.settings.workspaces / id / "files" / "a.txt"
        await bench.interrupt(id, lambda: file.exists() and file.read_text() != "a & b")
        await carry_out(bench.services, id)
        result = await bench.result(id)
        await close_models()
    assert (result.termination_reason, result.attempts, result.turn_count) == ("completed", 2, 3)
    assert [asked.status for asked in fake.journal] == [200] * 3
    second, third = (asked.body for asked in fake.journal[1:])
    assert third["system"] == second["system"]
    assert third["messages"][:3] == second["messages"]
    assert "tools" not in third
    assert third["messages"][1]["content"][1] == turns[0][1]
    warned, doubted = (message["content"][0]["text"] for message in third["messages"][2::2])
    assert "<warning><![CDATA[content: & outside of CDATA" in warned
    assert "outcome unknown" in doubted
