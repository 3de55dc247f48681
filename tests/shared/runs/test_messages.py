"""The inbox of a delegation while its record changes between a look at it and the script that writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.errors import NotFound
from deputize.shared.ids import new_id
from deputize.shared.limits import Limits
from deputize.shared.message import Message, MessageMode
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import record_key
from deputize.shared.runs.messages import messages_of, send
from deputize.shared.runs.store import RunStore
from deputize.shared.runs.upstreams import MAX_REPORT, reports_on


class Overtaken(Redis):
    """A client that is overtaken by another one once, after its first look at a record."""

    by: Callable[[], Awaitable[Any]] | None = None

    async def hmget(self, *args: Any, **fields: Any) -> Any:
        found = await super().hmget(*args, **fields)
        if self.by is not None:
            change, self.by = self.by, None
            await change()
        return found


@pytest.mark.parametrize("gone", [True, False])
async def test_a_record_that_changes_before_a_message_is_stored_is_looked_at_again(redis_url: str, gone: bool) -> None:
    async with Redis.from_url(redis_url, decode_responses=True) as redis:
        store = RunStore(redis, 60)
        id = (await store.accept([(new_id(), DelegationRequest(task="x"), Limits())], 30))[0].id
        async with Overtaken.from_url(redis_url, decode_responses=True) as overtaken:
            assert isinstance(overtaken, Overtaken)
            key = record_key(id)
            overtaken.by = lambda: redis.delete(key) if gone else redis.hincrby(key, "seq", 1)
            sending = send(overtaken, id, Message.new("hello", MessageMode.STEER, "tester"), 60)
            if gone:
                with pytest.raises(NotFound):
                    await sending
            else:
                sent = await sending
                assert [each.message_id for each in await messages_of(redis, id)] == [sent]
        await store.cancel(id) if not gone else await redis.flushdb()


def test_a_long_output_is_cut_in_what_others_read_of_it() -> None:
    result = ToolAgentResult.model_validate(
        {"delegationId": "d", "status": "succeeded", "terminationReason": "completed", "outputStatus": "valid"}
        | {"output": {"text": "x" * 2 * MAX_REPORT}}
    )
    assert MAX_REPORT < len(reports_on([("it", result)])) < 1.2 * MAX_REPORT
