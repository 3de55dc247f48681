"""The turns of economy runs in Redis: each is queued, sent in a message batch and answered, by ``economy.lua``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ...shared.connection import Script, retried
from ...shared.runs.keys import (
    economy_key,
    economy_queue_key,
    economy_turn_key,
    record_key,
)

ECONOMY = Script("economy")
ID_LENGTH = 30
"""Characters of a delegation's id, with which the name of a turn begins."""
MARK = "\0"
_HEAD, _TAIL = record_key(MARK).split(MARK)
KEEP_SECONDS = 3 * 24 * 3600
"""A batch ends within a day."""
MOST_TOOK = 10
"""Batches whose durations are remembered."""


@dataclass(frozen=True, slots=True)
class Collecting:
    """When queued turns become a batch."""

    most: int = 100
    most_bytes: int = 32 * 1024 * 1024
    wait_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How often what is looked at. All times are in seconds."""

    tick: float = 0.5
    lease: float = 30.0
    first_look: float = 2.0
    """From the creation of a batch to the first look at it."""
    longest_look: float = 60.0
    """Between two looks at a batch: a tenth of its age, up to this."""
    list: float = 5.0
    """Between two lists of batches, while something is in doubt."""
    doubt: float = 180.0
    """How long a batch may be missing in the list until it counts as not created: above ``CREATE_SECONDS``."""
    skew: float = 60.0
    """How much the clocks of Redis and the endpoint may differ."""
    reply: float = 5.0
    """Between two looks of a run for its reply."""
    longest_pause: float = 60.0
    """After a refusal that may pass, doubled from a second on."""
    collecting: Collecting = field(default_factory=Collecting)


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A batch that is being created or was created: since when, with the turns of these names.

    ``of`` is set where it may be the batch of that send, whose outcome is in doubt.
    """

    since: datetime
    names: Sequence[str]
    of: str = ""

    @classmethod
    def read(cls, text: str) -> UnderWay:
        value = json.loads(text)
        return cls(datetime.fromtimestamp(value["since"] / 1000, UTC), value["names"], value.get("of", ""))

    def may_be(self, send: str) -> str:
        """Returns how it is stored for a batch that may be the one of this send."""
        since = round(self.since.timestamp() * 1000)
        return json.dumps({"since": since, "names": self.names, "of": send}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class State:
    """What is under way at one endpoint: by send, and by batch; the batches that need not be looked at again."""

    sending: Mapping[str, UnderWay]
    batches: Mapping[str, UnderWay]
    seen: Set[str]


@dataclass(frozen=True, slots=True)
class Placed:
    """A turn in Redis. ``left``: the tokens, about, of another turn of the run that is under way and is not needed."""

    state: str
    name: str
    tries: int
    left: int


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns at one endpoint. ``account`` identifies it, with its credentials."""

    redis: Any
    account: str

    async def place(
        self, id: str, fence: str, name: str, *, key: str, messages: int, tokens: int, body: bytes, again: str
    ) -> Placed | None:
        """Queues a turn unless an earlier attempt did; returns None where another worker owns the run.

        ``key`` identifies its request in any attempt, ``again`` is the name of the try that has failed.
        """
        about = {"id": id, "fence": fence, "name": name, "key": key, "messages": messages, "tokens": tokens}
        answer = await self._do("place", body, **about, again=again)
        return None if answer[0] == "fenced" else Placed(answer[0], answer[1], int(answer[2]), int(answer[3]))

    async def result(self, id: str, name: str) -> dict[str, Any] | None:
        """Returns the result of a turn, if it is there."""
        ask = partial(self.redis.hmget, economy_turn_key(id), ["name", "result"])
        own, result = await retried(ask)
        if own != name:
            return {"type": "gone"}
        return json.loads(result) if result else None

    async def waiting(self, id: str) -> tuple[str, int, str] | None:
        """Returns the key of a run's turn, how many messages its request has, and its state."""
        key, messages, state = await retried(
            partial(self.redis.hmget, economy_turn_key(id), ["key", "messages", "state"])
        )
        return (key, int(messages), state) if key else None

    async def withdraw(self, id: str) -> Sequence[str]:
        """Removes a run's turn; returns its state (``none``: there is none), name, tokens, messages and result."""
        return await self._do("withdraw", id=id)

    async def lead(self, token: str, seconds: float) -> bool:
        """Returns whether this process creates and reads the batches of the endpoint."""
        return bool((await self._do("lead", token=token, lease_ms=round(seconds * 1000)))[0])

    async def release(self, token: str) -> None:
        await self._do("release", token=token)

    async def take(self, send: str, collecting: Collecting) -> dict[str, str]:
        """Takes the turns of the next batch, if one is due; notes before that they are being sent."""
        found = await self._do(
            "take",
            send=send,
            most=collecting.most,
            most_bytes=collecting.most_bytes,
            wait_ms=round(collecting.wait_seconds * 1000),
        )
        return dict(zip(found[::2], found[1::2], strict=True))

    async def created(self, send: str, batch: str) -> None:
        await self._do("created", send=send, batch=batch)

    async def returned(self, send: str) -> None:
        """Queues the turns of a send again that has created no batch."""
        await self._do("returned", send=send)

    async def may_be(self, send: str, batch: str, sent: UnderWay) -> None:
        await self.redis.hsetnx(economy_key(self.account), f"batch:{batch}", sent.may_be(send))

    async def answer(self, name: str, result: Mapping[str, Any]) -> bool:
        """Stores the result of a turn; returns whether it was waited for."""
        text = json.dumps(result, separators=(",", ":"))
        return bool((await self._do("answer", text.encode("utf-8", "replace"), name=name))[0])

    async def ended(self, batch: str, took: float | None = None) -> None:
        """Forgets a batch whose results were read, or that belongs to another client."""
        further: dict[str, Any] = {} if took is None else {"took": round(took, 3), "most_took": MOST_TOOK}
        await self._do("ended", batch=batch, **further)

    async def took(self) -> float | None:
        """Returns the seconds of the longest of the last batches; None before the first one."""
        seconds = json.loads(await retried(partial(self.redis.hget, economy_key(self.account), "took")) or "[]")
        return max(seconds, default=None)

    async def state(self) -> State:
        fields: dict[str, str] = await self.redis.hgetall(economy_key(self.account))
        sending, batches, seen = (
            {name.removeprefix(kind): text for name, text in fields.items() if name.startswith(kind)}
            for kind in ("sending:", "batch:", "seen:")
        )
        sent, created = ({id: UnderWay.read(text) for id, text in each.items()} for each in (sending, batches))
        return State(sent, created, {*seen})

    async def now(self) -> datetime:
        seconds, micros = await self.redis.time()
        return datetime.fromtimestamp(seconds + micros / 1_000_000, UTC)

    async def _do(self, operation: str, value: bytes = b"", **arguments: Any) -> Any:
        keys = [economy_key(self.account), economy_queue_key(self.account)]
        further = {"record_head": _HEAD, "record_tail": _TAIL, "turn_head": economy_turn_key("")}
        given = {"operation": operation, "keep_ms": KEEP_SECONDS * 1000, **further, **arguments}
        return await ECONOMY.run(self.redis, keys, given, value)
