"""How a turn ends, and what the run does then: go on, begin anew, or be done."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.events import ProgressMade
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import history_key, ledger_key, record_key
from deputize.worker.task import carry_out
from tests.fake_model import Turn, text
from tests.fake_model import call as asked
from tests.running import Bench, call, say, script
from tests.waiting import until
from tests.worker.conversations import talking
from tests.worker.long_conversations import FIRST, long_script

WRITE = call("write_file", path="a.txt", content="x")


async def compactions(bench: Bench, id: str) -> list[str]:
    return [each.event.message for each in await bench.events(id) if isinstance(each.event, ProgressMade)]


@pytest.mark.parametrize("stop", ["end_turn", "max_tokens", "pause_turn"])
async def test_calls_are_carried_out_whatever_reason_the_reply_gives_for_its_end(
    bench: Bench, tmp_path: Path, stop: str
) -> None:
    result = await bench.run(model=script(tmp_path, {"blocks": [WRITE], "stop": stop}, [say("done")]))
    assert (result.termination_reason, result.turn_count, result.files_modified) == ("completed", 2, ["a.txt"])


async def test_a_reply_that_pauses_is_no_end(bench: Bench, tmp_path: Path) -> None:
    pause = {"blocks": [say("Wait.")], "stop": "pause_turn"}
    result = await bench.run(model=script(tmp_path, pause, [say("done")]))
    assert (result.termination_reason, result.turn_count, result.summary) == ("completed", 2, "Wait. done")


@pytest.mark.requirement("P-21")
async def test_a_reply_that_reached_the_end_of_the_window_is_followed_by_a_fresh_conversation(
    bench: Bench, tmp_path: Path
) -> None:
    name = script(tmp_path)
    half = {"blocks": [say("half of")], "stop": "model_context_window_exceeded"}
    rules = [{**FIRST, "turns": [[say("done")]]}, {"turns": [half], "summary": "NOTES"}]
    Path(name.partition(":")[2]).write_text(json.dumps({"rules": rules, "label": ""}))
    result = await bench.run(model=name)
    assert (result.termination_reason, result.turn_count, result.summary) == ("completed", 2, "done")
    assert "the reply reached the end of the model's window: " in (await compactions(bench, result.delegation_id))[0]


@pytest.mark.requirement("P-06", "P-16")
async def test_answers_are_kept_with_the_count_of_their_calls_and_the_end_of_the_ledger(
    redis_url: str, tmp_path: Path
) -> None:
    turns = Turn([asked("write_file", path="a.txt", content="x")]), Turn([text("never")], delay=1000)
    async with talking(redis_url, tmp_path / "home", *turns) as (bench, _):
        id = await bench.accept(DelegationRequest(task="do it"))
        running = asyncio.create_task(carry_out(bench.services, id))
        redis = bench.store.redis
        await until(partial(answered, redis, id))
        async with redis.pipeline() as both:
            counts, ledger = await both.hget(record_key(id), "checkpoint").hlen(ledger_key(id)).execute()
        assert (json.loads(counts)["toolCalls"], ledger) == (1, 0)
        await bench.store.cancel(id)
        await running


async def answered(redis: Any, id: str) -> bool:
    return await redis.llen(history_key(id)) == 3


@pytest.mark.requirement("P-05", "P-21")
async def test_no_summary_is_asked_for_where_no_turn_is_left_that_could_use_it(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run("write it", model=long_script(tmp_path), limits={"max_turns": 2})
    assert (result.termination_reason, result.turn_count) == ("max_turns", 2)
    assert await compactions(bench, result.delegation_id) == []
