"""A conversation that nears the model's window goes on from a summary of itself (P-21)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import Status, TerminationReason
from deputize.shared.events import ProgressMade
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import history_key
from deputize.worker.conversation import RESTART
from deputize.worker.task import carry_out
from tests.running import Bench, open_bench, say, script
from tests.waiting import until
from tests.worker.long_conversations import FIRST, READ, WRITE, long_script


async def kept(bench: Bench, id: str) -> list[Any]:
    return [json.loads(entry) for entry in await bench.store.redis.lrange(history_key(id), 0, -1)]


@pytest.mark.requirement("P-21")
async def test_a_long_conversation_goes_on_as_a_fresh_one_from_a_summary(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run("write it", model=long_script(tmp_path))
    assert (result.termination_reason, result.summary) == (TerminationReason.COMPLETED, "all done")
    assert result.files_modified == ["a.txt"]
    assert (result.turn_count, result.tool_call_count) == (4, 3)
    entries = await kept(bench, result.delegation_id)
    at = entries.index(json.loads(RESTART))
    before, after = entries[:at], entries[at + 1 :]
    assert [message["role"] for message in before] == ["user", "assistant"] * 2 + ["user"]
    text = after[0]["content"][0]["text"]
    assert text.startswith("# Task\n\nwrite it")
    assert "NOTES: a.txt was written." in text
    assert "# Files you have read" in text
    assert text.count("- a.txt") == 1
    assert [message["role"] for message in after] == ["user", "assistant", "user", "assistant"]
    said = [event.message for event in await bench.seen(result, ProgressMade)]
    assert said == ["the conversation neared the model's window: 5 messages became a summary of 25 characters"]


@pytest.mark.requirement("P-21")
async def test_what_was_sent_is_never_edited(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run("write it", model=long_script(tmp_path))
    entries = await kept(bench, result.delegation_id)
    calls = [block["id"] for entry in entries for block in entry.get("content", []) if block["type"] == "tool_use"]
    answers = [b["tool_use_id"] for entry in entries for b in entry.get("content", []) if b["type"] == "tool_result"]
    assert calls == answers
    assert len(calls) == 3


@pytest.mark.requirement("P-21")
@pytest.mark.parametrize("summary", ["", "   "])
async def test_a_summariser_that_says_nothing_does_not_fail_the_run(bench: Bench, tmp_path: Path, summary: str) -> None:
    result = await bench.run("write it", model=long_script(tmp_path, summary=summary))
    assert result.status is Status.SUCCEEDED
    entries = await kept(bench, result.delegation_id)
    text = entries[entries.index(json.loads(RESTART)) + 1]["content"][0]["text"]
    assert "The model wrote no summary: the model's reply was empty" in text
    assert "1. [turn 1] ✓ write a.txt" in text


@pytest.mark.requirement("P-21")
async def test_a_conversation_that_the_endpoint_finds_too_long_begins_anew(bench: Bench, tmp_path: Path) -> None:
    name = script(tmp_path)
    full = {"kind": "too_long", "message": "HTTP 400: prompt is too long: 210000 tokens > 200000 maximum"}
    turns = [[WRITE], {"blocks": [say("never said")], "faults": [full]}]
    after = {**FIRST, "turns": [[say("done from the log")]]}
    rules = {"rules": [after, {"turns": turns, "summary": "NOTES"}], "label": ""}
    Path(name.partition(":")[2]).write_text(json.dumps(rules))
    result = await bench.run("write it", model=name)
    assert (result.status, result.summary) == (Status.SUCCEEDED, "done from the log")
    assert result.turn_count == 2
    (said,) = await bench.seen(result, ProgressMade)
    assert "HTTP 400: prompt is too long" in said.message


async def test_a_task_longer_than_the_window_is_told_so(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run("write it " * 1000, model=long_script(tmp_path))
    assert result.termination_reason is TerminationReason.MODEL_UNAVAILABLE
    assert "give the task less context" in result.errors[0]


@pytest.mark.requirement("P-21")
async def test_a_lost_worker_goes_on_in_the_fresh_conversation(redis_url: str, tmp_path: Path) -> None:
    """The second attempt sees only the fresh conversation, and the files read before are known to it."""
    model = long_script(tmp_path, [READ], {"blocks": [say("never said")], "delay": 60})
    file = Path(model.partition(":")[2])
    async with open_bench(redis_url, tmp_path / "home") as bench:
        id = await bench.accept(DelegationRequest(task="write it", model=model))
        first = asyncio.create_task(carry_out(bench.services, id))
        await until(lambda: _turns(bench, id, 4))
        first.cancel()
        await asyncio.wait({first})
    file.write_text(file.read_text().replace('"delay": 60', '"delay": 0').replace("never said", "all done"))
    async with open_bench(redis_url, tmp_path / "home", name="worker-2") as bench:
        await carry_out(bench.services, id)
        result = await bench.result(id)
        assert (result.status, result.summary, result.attempts) == (Status.SUCCEEDED, "all done", 2)
        assert (result.turn_count, result.tool_call_count) == (4, 3)
        entries = await kept(bench, id)
        assert entries.count(json.loads(RESTART)) == 1


async def _turns(bench: Bench, id: str, number: int) -> bool:
    events = await bench.events(id)
    return sum(each.event.type == "turn_started" for each in events) >= number
