"""The inbox of one run: messages that its caller sends while it works, each read once, before the next turn.

The messages are in Redis, where the service puts them. The run notices new ones without a request of its own: by a
notification, and by the answer of each of its writes. That it has read one is stored in the same write as the entry of
the conversation, so no crash makes it read twice or never.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from ...shared.connection import retried
from ...shared.events import Event, MessageRead
from ...shared.markup import harmless
from ...shared.message import Message, MessageMode
from ...shared.runs.messages import messages_of, received
from ...shared.runs.record import ANNOUNCED, MESSAGES, READ, Claim

WRAP_UP_SECONDS = 10.0
"""Seconds in which the reply and the calls under way may end when the run is to wrap up."""
MAX_REPEATED_CHARS = 16_000
"""Characters of the last messages that a conversation repeats after a compaction."""


class Inbox:
    """The messages to one run.

    Args:
        claim: How many messages there were, and what earlier attempts have done with them.
        emit: Publishes an event.
        store: Sets fields of the record, in the same write.
    """

    def __init__(
        self,
        claim: Claim,
        emit: Callable[[Event], None],
        store: Callable[[Mapping[str, str]], None],
    ) -> None:
        self._id = claim.id
        self._emit, self._store = emit, store
        self._on_wrap_up: Callable[[], None] = lambda: None
        self._announced, self._read = claim.kept.get(ANNOUNCED, 0), claim.kept.get(READ, 0)
        """How many messages events have reported, and how many the conversation of this try has."""
        self._stored = claim.kept.get(MESSAGES, 0)
        """How many messages there are, as far as the run has noticed."""
        self._noticed = 0
        self._known: list[Message] = []
        self._redis: Any = None
        self._fetching: asyncio.Task[None] | None = None
        self._work: asyncio.Timeout | None = None
        self._waits: Callable[[], bool] = lambda: False
        self._wraps_up = False
        self._held = False
        self._seconds = WRAP_UP_SECONDS

    def open(self, redis: Any, seconds: float, on_wrap_up: Callable[[], None]) -> None:
        """Fetches what is there. ``on_wrap_up`` is called once when the caller asks the run to wrap up.

        ``seconds``: how long what is under way may go on then.
        """
        self._redis, self._seconds, self._on_wrap_up = redis, seconds, on_wrap_up
        self._begin()

    def close(self) -> None:
        """Fetches nothing more."""
        if self._fetching is not None:
            self._fetching.cancel()

    def notify(self) -> None:
        """Notices that a message was sent."""
        self.note(self._stored + 1)

    def note(self, stored: int) -> None:
        """Notices how many messages there are."""
        self._stored, self._noticed = max(self._stored, stored), self._noticed + 1
        self._begin()

    @property
    def unread(self) -> Sequence[Message]:
        return self._known[self._read :]

    async def settled(self) -> None:
        """Returns when every message that was noticed is known."""
        if self._fetching is not None:
            await asyncio.shield(self._fetching)

    def hold(self) -> None:
        """Leaves what is unread for the turn after the next one, whose request was sent before."""
        self._held = True

    def read(self, ask: Callable[..., None], turn: int) -> None:
        """Adds the unread messages to the conversation by ``ask``, with their receipts; ``turn`` is the next one.

        Nothing is awaited, so all of it is one write.
        """
        held, self._held = self._held, False
        if held or not (unread := self.unread):
            return
        if texts := [quoted(message) for message in unread if message.text]:
            ask(*texts)
        for message in unread:
            self._emit(MessageRead(message_id=message.message_id, turn=turn))
        self._read = len(self._known)
        self._store({READ: str(self._read)})

    def repeated(self) -> str:
        """Returns the last messages that were read, for a conversation that begins anew."""
        texts, room = list[str](), MAX_REPEATED_CHARS
        for message in reversed(self._known[: self._read]):
            room -= len(message.text)
            if message.text and room >= 0:
                texts.insert(0, quoted(message))
        return "\n\n".join(texts)

    @asynccontextmanager
    async def ends_work(self, waits: Callable[[], bool], check: Callable[[], None]) -> AsyncGenerator[None]:
        """Cancels the block some seconds after a request to wrap up; at once where the run only ``waits`` then.

        Raises what ``check`` raises.
        """
        self._waits = waits
        try:
            async with asyncio.timeout(None) as self._work:
                self._hurry()
                yield
        except TimeoutError:
            if self._work is not None and self._work.expired():
                check()
            raise
        finally:
            self._work = None

    def _begin(self) -> None:
        if self._redis is not None and self._fetching is None and self._stored > len(self._known):
            self._fetching = asyncio.create_task(self._fetch(), name=f"inbox {self._id}")

    async def _fetch(self) -> None:
        noticed = -1
        # A number that comes meanwhile may be one that a notification has counted too early: it is looked at again.
        while noticed < self._noticed and self._stored > len(self._known):
            noticed = self._noticed
            self._known += await retried(partial(messages_of, self._redis, self._id, len(self._known)))
        self._stored = len(self._known)
        self._fetching = None  # not later: a notification in between would be missed
        self._announce()

    def _announce(self) -> None:
        if new := self._known[self._announced :]:
            for message in new:
                self._emit(received(message))
            self._announced = len(self._known)
            self._store({ANNOUNCED: str(self._announced)})
        if not self._wraps_up and any(message.mode is MessageMode.WRAP_UP for message in self._known):
            self._wraps_up = True
            self._on_wrap_up()
            self._hurry()

    def _hurry(self) -> None:
        if self._wraps_up and self._work is not None:
            seconds = 0 if self._waits() else self._seconds
            self._work.reschedule(asyncio.get_running_loop().time() + seconds)


def quoted(message: Message) -> str:
    """Returns the text of a message as the model reads it: marked as the words of its caller."""
    return (
        '<system_hint type="message">The caller that handed you this task has sent you a message. It belongs to the '
        f"task, and where they differ it counts.</system_hint>\n<caller_message>\n{harmless(message.text).noted}\n"
        "</caller_message>"
    )
