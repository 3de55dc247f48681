"""The store beside its contract (``tests/contracts/store/``): what happens between two of its round trips."""

from __future__ import annotations

from typing import Any

import pytest
from fakeredis import FakeAsyncRedis

from deputize.shared.errors import NotFound
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import RunStore


class Forgetful(FakeAsyncRedis):
    """Loses a record as soon as somebody has looked at it, as a record does whose time is over."""

    async def hmget(self, name: Any, keys: Any, *args: Any) -> Any:
        found = await super().hmget(name, keys, *args)
        await self.delete(name)
        return found


async def test_what_is_removed_while_it_is_cancelled_is_not_found() -> None:
    async with Forgetful(decode_responses=True) as redis:
        store, request = RunStore(redis, 60), DelegationRequest(task="t")
        id = (await store.accept([(new_id(), request, request.limits)], 60))[0].id
        with pytest.raises(NotFound):
            await store.cancel(id)
