"""The inbox of a delegation in Redis: messages in the order in which they were sent, until its model has read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..connection import Script
from ..delegation import Status, TerminationReason
from ..errors import Conflict, InboxFull
from ..events import MessageReceived, WrapUpRequested
from ..ids import first_id
from ..message import MAX_UNREAD, Message, MessageMode
from ..wire import now
from .keys import LEASES, MESSAGES, keys_of, messages_key
from .record import READ, not_found
from .unstarted import ending, numbered, state_of

WRAPPED_UP: Mapping[str, Any] = {
    "status": Status.CANCELLED,
    "termination_reason": TerminationReason.WRAPPED_UP,
    "summary": "Wrapped up before it was started.",
}
SEND = Script("queue", "file", "notify", "count", "unstarted", "send")


def received(message: Message) -> MessageReceived | WrapUpRequested:
    """Returns the event that reports a message's arrival."""
    if message.mode is MessageMode.WRAP_UP:
        return WrapUpRequested(message_id=message.message_id, by=message.by, reason=message.text)
    return MessageReceived(message_id=message.message_id, text=message.text, by=message.by)


async def messages_of(redis: Any, id: str, after: int = 0) -> list[Message]:
    """Returns the messages that were sent to a delegation, without the first ``after``."""
    return [Message.model_validate_json(each) for each in await redis.lrange(messages_key(id), after, -1)]


@dataclass(frozen=True, slots=True)
class Once:
    """The key in Redis that is set with a message, so that nothing more is sent for the same cause."""

    key: str
    seconds: int


async def send(redis: Any, id: str, message: Message, retention: int, once: Once | None = None) -> str:
    """Puts a message into the inbox and returns its id; for another request to wrap up that of the first one.

    Where the key of ``once`` is set already nothing is sent, and the id is another one, or "".
    A delegation that never ran is ended by a request to wrap up, and kept for ``retention`` seconds. Raises
    ``NotFound``, ``Conflict`` where it has ended, and ``InboxFull``.
    """
    while True:
        arguments = await _arguments(redis, id, message, retention)
        if once:
            arguments = {**arguments, "once": once.key, "once_seconds": once.seconds}
        verdict, *rest = await SEND.run(redis, [LEASES, *keys_of(id)], arguments)
        match verdict:
            case "sent":
                return rest[0]
            case "gone":
                raise not_found(id)
            case "ended":
                raise Conflict(
                    f"{id} has ended, so nothing reads a message; `deputize continue {id} TEXT` goes on with it"
                )
            case "full":
                detail = f"{id} has {MAX_UNREAD} messages that its model has not read; send more after its next turn"
                raise InboxFull(detail)
            case _:
                pass  # the record moved on meanwhile


async def _arguments(redis: Any, id: str, message: Message, retention: int) -> Mapping[str, Any]:
    state, event = await state_of(redis, id), received(message)
    wraps_up = message.mode is MessageMode.WRAP_UP
    unread = await messages_of(redis, id, int(state[READ] or 0)) if wraps_up else []
    end = ending(
        id,
        state,
        WRAPPED_UP,
        retention=retention,
        undelivered=[*unread, message],
        before=[event],
    )
    return end | {
        "message_id": message.message_id,
        "message": message.to_json(),
        "wraps_up": wraps_up,
        "at_most": MAX_UNREAD,
        "event": numbered(id, state, [event])[0],
        "message_channel": MESSAGES,
        "mark": first_id(now()),
    }
