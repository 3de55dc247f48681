"""Permission requests in Redis whose run or whose time is over."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import Conflict
from deputize.shared.permission import PermissionAnswer, PermissionOutcome
from deputize.shared.runs.keys import PENDING, permissions_key
from deputize.shared.runs.permissions import answer, find, pending, permission_id, write_answer
from deputize.shared.wire import now
from tests.asking import WRITE, answered, begun, questions
from tests.running import Bench, call, say, script

ONCE = PermissionAnswer(outcome=PermissionOutcome.PROCEED_ONCE, at=now())


class Repeating:
    """A client that sends each script twice and returns the second reply, as after a lost one."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis

    async def evalsha(self, *command: Any) -> Any:
        await self._redis.evalsha(*command)
        return await self._redis.evalsha(*command)

    async def eval(self, *command: Any) -> Any:
        await self._redis.eval(*command)
        return await self._redis.eval(*command)


def test_the_ends_of_ids_differ_between_delegations_and_are_the_same_in_every_attempt() -> None:
    first = [permission_id(f"dlg_{number:026}", 0, 1, "1") for number in range(1000)]
    assert len({id[-8:] for id in first}) == 1000
    assert first == [permission_id(f"dlg_{number:026}", 0, 1, "1") for number in range(1000)]


async def test_a_request_whose_run_is_gone_leaves_the_list(asking: Bench, tmp_path: Path) -> None:
    id = permission_id("dlg_" + "0" * 26, 0, 1, "1")
    await asking.store.redis.hset(PENDING, id, "dlg_" + "0" * 26)
    assert await pending(asking.store.redis) == []
    assert await asking.store.redis.hlen(PENDING) == 0


async def test_an_answer_after_the_time_is_refused_even_if_the_worker_has_not_noticed(
    asking: Bench, tmp_path: Path
) -> None:
    id, run = await begun(asking, script(tmp_path, [WRITE], [say("done")]))
    (request,) = await questions(asking)
    key, kept = permissions_key(id), request.to_json()
    past = request.model_copy(update={"expires_at": request.created_at - timedelta(seconds=1)})
    await asking.store.redis.hset(key, request.permission_id, past.to_json())
    with pytest.raises(Conflict, match="expired"):
        await answer(asking.store.redis, request.permission_id, ONCE)
    await asking.store.redis.hset(key, request.permission_id, kept)
    await answered(asking, request, "cancel")
    await run


async def test_of_equal_answers_of_the_same_millisecond_one_counts(asking: Bench, tmp_path: Path) -> None:
    _, run = await begun(asking, script(tmp_path, [WRITE], [say("done")]))
    (request,) = await questions(asking)
    given = [answer(asking.store.redis, request.permission_id, ONCE) for _ in range(10)]
    found = await asyncio.gather(*given, return_exceptions=True)
    assert sorted(type(each).__name__ for each in found) == [*["Conflict"] * 9, "PermissionRequest"]
    await run


async def test_an_answer_whose_reply_was_lost_may_be_sent_again(asking: Bench, tmp_path: Path) -> None:
    _, run = await begun(asking, script(tmp_path, [WRITE], [say("done")]))
    (request,) = await questions(asking)
    store, kept = asking.store.redis, await find(asking.store.redis, request.permission_id)
    assert await write_answer(Repeating(store), kept, ONCE) == ["answered"]
    await run


async def test_an_answer_for_a_command_leaves_other_requests_open(asking: Bench, tmp_path: Path) -> None:
    calls = [call("bash", command="touch a"), WRITE]
    _, run = await begun(asking, script(tmp_path, calls, [say("done")]))
    command, write = sorted(await questions(asking, 2), key=lambda request: request.step.tool_name)
    await answered(asking, command, "proceed_always")
    assert [request.permission_id for request in await questions(asking)] == [write.permission_id]
    await answered(asking, write, "cancel")
    await run
