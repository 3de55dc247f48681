"""A worker that is killed between two of its writes: what it writes after them never reaches Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from redis.asyncio import Redis

from deputize.shared.connection import Lasts, Pipe, Script, ScriptCall
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import RECORD, WRITING
from deputize.worker.task import carry_out
from tests.runs.bench import Bench


class CutPipe(Pipe):
    """Takes so many writes of runs; each later command is lost, and who waits for it is cancelled."""

    def __init__(self, client: Redis, writes: int) -> None:
        super().__init__(client, WRITING)
        self.left = writes

    @property
    def is_cut(self) -> bool:
        return self.left < 0

    def script(
        self, script: Script, keys: Sequence[str], arguments: Mapping[str, Any], values: Sequence[Any] = ()
    ) -> asyncio.Future[Any]:
        return self.deferred(script, lambda: (keys, arguments, values))

    def deferred(self, script: Script, call: Callable[[], ScriptCall], *, lasts: Lasts = bool) -> asyncio.Future[Any]:
        self.left -= script is RECORD
        if not self.is_cut:
            self.flush()  # so that writes are as small as they can be
            return super().deferred(script, call, lasts=lasts)
        lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        lost.cancel()
        return lost

    def publish(self, channel: str, message: str) -> None:
        if not self.is_cut:
            super().publish(channel, message)


async def carry_out_cut(bench: Bench, request: DelegationRequest, writes: int) -> tuple[str, bool]:
    """Carries it out by a worker that is killed after so many writes, and by another one. Returns its id.

    The second value is false if the first worker came to the end.
    """
    id = await bench.accept(request)
    async with CutPipe(bench.store.redis, writes) as pipe:
        with suppress(asyncio.CancelledError):
            await carry_out(replace(bench.services, pipe=pipe), id)
    if pipe.is_cut:
        await bench.lose(id)
        await carry_out(bench.services, id)
    return id, pipe.is_cut
