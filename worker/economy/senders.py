"""The message batches of one worker process: who waits for them, and how often what is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .turns import Pace, Turns

if TYPE_CHECKING:
    from ..models.anthropic import AnthropicModel


class Sender(Protocol):
    """What creates and reads the batches of one account while ``waiting`` is above 0."""

    turns: Turns
    waiting: int
    runs: bool

    async def run(self) -> None: ...


@dataclass(slots=True)
class BatchSenders:
    """The senders of one worker process, one per account."""

    redis: Any
    pace: Pace = field(default_factory=Pace)
    without: dict[str, str] = field(default_factory=dict[str, str])
    """Accounts whose endpoint has no message batches, with the reason."""
    _senders: dict[str, Sender] = field(default_factory=dict[str, Sender])
    _begun: asyncio.Queue[Sender] = field(default_factory=asyncio.Queue["Sender"])

    def turns(self, account: str) -> Turns:
        return Turns(self.redis, account)

    @contextmanager
    def waiting(self, model: AnthropicModel) -> Generator[None]:
        """Sends and reads batches for the account of this model while the block runs."""
        if (account := model.account) not in self._senders:
            from .api import BatchApi
            from .sender import BatchSender  # with a client of HTTP, which most workers never load

            self._senders[account] = BatchSender(self.turns(account), BatchApi(model), self.pace)
        sender = self._senders[account]
        sender.waiting += 1
        if not sender.runs:
            sender.runs = True
            self._begun.put_nowait(sender)
        try:
            yield
        finally:
            sender.waiting -= 1

    async def work_forever(self) -> None:
        """Runs the senders that runs need."""
        async with asyncio.TaskGroup() as group:
            while True:
                sender = await self._begun.get()
                group.create_task(sender.run(), name=f"message batches {sender.turns.account}")
