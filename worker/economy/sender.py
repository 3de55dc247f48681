"""The process that creates message batches of queued turns, and reads their results: one at a time per account.

Creating a batch has no idempotency key. So its turns are noted as being sent before, and its id is noted after it. What
was noted and has no id is in doubt: the batches of the account are listed, and an unknown one of the same size may be
it. Its results decide, for they have the names of the turns. Only where no such batch is listed for a while
(``Pace.doubt``) are the turns sent again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import timedelta

from ...shared.background import RepeatedCause
from ...shared.connection import REDIS_ERRORS, shielded
from ...shared.log import log
from ..models.retry import Failure
from .api import NO_SUCH_API, BatchApi, MessageBatch, may_exist
from .turns import Collecting, Pace, State, Turns, UnderWay


@dataclass(slots=True)
class BatchSender:
    """Creates and reads the batches of one account while runs of this process wait for them."""

    turns: Turns
    api: BatchApi
    pace: Pace
    waiting: int = 0
    """How many runs of this process wait for a reply."""
    runs: bool = False
    """Whether its task does not end any more before it has looked at ``waiting`` again."""
    _token: str = field(default_factory=lambda: secrets.token_hex(8))
    _sends: int = 0
    _most: int = 0
    """How many turns the next batch has at most, after a refused one; 0: as many as may be."""
    _pause_until: float = 0.0
    _pause: float = 0.0
    _listed: float = float("-inf")
    _looks: dict[str, float] = field(default_factory=dict[str, float])
    """When each batch is looked at again."""

    async def run(self) -> None:
        """Works until no run of this process waits. An error is logged once, and tried again."""
        trouble = RepeatedCause("message batches are not sent or read here")
        try:
            while self.waiting:
                try:
                    await self.step()
                    trouble.works()
                except (*REDIS_ERRORS, Failure, ValueError, KeyError) as error:
                    trouble.failed(error)
                await asyncio.sleep(self.pace.tick)
        finally:
            self.runs = False
            with suppress(*REDIS_ERRORS):
                await shielded(self.turns.release(self._token))

    async def step(self) -> None:
        """Does what is due, where this process is the one that does it."""
        if not await self.turns.lead(self._token, self.pace.lease):
            return
        state, failures = await self.turns.state(), list[Failure]()
        for work in (self._settle_doubts, self._send_due, self._look_at_due):
            try:
                await work(state)
            except Failure as failure:  # one of them does not keep the others from being done
                failures.append(failure)
        if failures:
            raise failures[0]

    async def _send_due(self, state: State) -> None:
        while time.monotonic() >= self._pause_until and await self._send():
            pass

    async def _look_at_due(self, state: State) -> None:
        for id, batch in state.batches.items():
            if time.monotonic() >= self._looks.get(id, float("-inf")):
                await self._look(id, batch, state)

    async def _send(self) -> bool:
        """Creates one batch, if one is due; returns whether another one may be."""
        self._sends += 1
        send, most = f"{self._token}-{self._sends}", self._most or self.pace.collecting.most
        collecting = self.pace.collecting
        if most < collecting.most:
            collecting = Collecting(most, collecting.most_bytes, 0)
        begun = time.monotonic()
        if not (requests := await self.turns.take(send, collecting)):
            return False
        if time.monotonic() - begun > self.pace.lease:  # it was suspended: another process may have settled the doubt
            await self.turns.returned(send)
            return False
        try:
            batch = await self.api.create(requests)
        except Failure as failure:
            await self._refused(send, requests, failure)
            return False
        await self.turns.created(send, batch.id)
        self._looks[batch.id] = time.monotonic() + self.pace.first_look
        self._pause, self._most = 0.0, self._most * 2 if self._most * 2 < self.pace.collecting.most else 0
        return True

    async def _refused(self, send: str, requests: Mapping[str, str], failure: Failure) -> None:
        if may_exist(failure):
            log.warning("whether a message batch was created is in doubt: %s", failure)
            return
        if failure.status in (400, 413, 422) and len(requests) > 1:
            # One of them may be at fault: smaller batches find it, and the others are not refused with it.
            self._most = len(requests) // 2
            await self.turns.returned(send)
        elif failure.retryable:
            self._pause = min(max(self._pause * 2, 1.0), self.pace.longest_pause)
            self._pause_until = time.monotonic() + max(self._pause, failure.retry_after or 0)
            await self.turns.returned(send)
        else:
            kind = "unsupported" if failure.status in NO_SUCH_API else "refused"
            facts = {"message": str(failure), "reason": failure.reason, "status": failure.status}
            result = {"type": kind, **facts, "too_long": failure.too_long}
            for name in requests:
                await self.turns.answer(name, result)
            await self.turns.returned(send)

    async def _settle_doubts(self, state: State) -> None:
        """Looks for the batches of sends whose outcome is not known: of lost processes, or after a cut connection."""
        if not state.sending or time.monotonic() < self._listed + self.pace.list:
            return
        self._listed = time.monotonic()
        now, skew = await self.turns.now(), timedelta(seconds=self.pace.skew)
        window = skew + timedelta(seconds=self.pace.doubt)
        oldest = min(each.since for each in state.sending.values())
        listed = await self.api.since(oldest - window)
        known = {*state.batches, *state.seen}
        for send, sent in state.sending.items():
            found = [
                each
                for each in listed
                if each.id not in known and each.size == len(sent.names) and abs(each.created - sent.since) <= window
            ]
            for each in found:
                await self.turns.may_be(send, each.id, sent)
            is_open = found or any(each.of == send for each in state.batches.values())
            if not is_open and (now - sent.since).total_seconds() >= self.pace.doubt:
                log.warning("no message batch was created of %d turns: they are sent again", len(sent.names))
                await self.turns.returned(send)

    async def _look(self, id: str, batch: UnderWay, state: State) -> None:
        """Reads the results of a batch that has ended."""
        try:
            found = await self.api.retrieve(id)
        except Failure as failure:
            if failure.status != 404:
                raise
            found = None
        if found is None:
            await self._gone(id, batch)
        elif found.has_ended:
            await self._read(found, batch, state.sending)
        else:
            age = (await self.turns.now() - batch.since).total_seconds()
            self._looks[id] = time.monotonic() + min(max(self.pace.first_look, age / 10), self.pace.longest_look)

    async def _read(self, found: MessageBatch, batch: UnderWay, doubtful: Mapping[str, UnderWay]) -> None:
        missing, is_ours = {*batch.names}, not batch.of
        async with aclosing(self.api.results(found.id)) as results:
            async for name, result in results:
                # Of a batch that may be ours the results decide whether it is, and of which send.
                send = None if is_ours else next((each for each, sent in doubtful.items() if name in sent.names), None)
                if send:
                    await self.turns.created(send, found.id)
                    missing, is_ours = {*doubtful[send].names}, True
                if is_ours and name in missing:
                    await self.turns.answer(name, result)
                    missing.discard(name)
        if is_ours:
            for name in missing:
                await self.turns.answer(name, {"type": "missing"})
        took = (found.ended - found.created).total_seconds() if is_ours and found.ended else None
        await self._forget(found.id, took)

    async def _gone(self, id: str, batch: UnderWay) -> None:
        """Ends a batch that the endpoint does not know any more."""
        if not batch.of:
            for name in batch.names:
                await self.turns.answer(name, {"type": "missing"})
        await self._forget(id, None)

    async def _forget(self, id: str, took: float | None) -> None:
        await self.turns.ended(id, took)
        self._looks.pop(id, None)
