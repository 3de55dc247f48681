"""Whether the messages to a delegation that has ended were read once each, in order, with their receipts."""

from __future__ import annotations

import json

from deputize.shared.events import MessageRead, MessageReceived, WrapUpRequested
from deputize.shared.runs.messages import messages_of
from deputize.shared.runs.store import RunStore


async def check_receipts(store: RunStore, id: str) -> int:
    """Asserts it. Returns how many messages were read."""
    result = (await store.get(id)).result
    assert result is not None
    sent, envelopes = await messages_of(store.redis, id), await store.events(id)
    ids = [message.message_id for message in sent]
    read = [each.event for each in envelopes if isinstance(each.event, MessageRead)]
    assert [event.message_id for event in read] + [each.message_id for each in result.undelivered] == ids
    assert [event.turn for event in read] == sorted(event.turn for event in read)
    received = [each.event for each in envelopes if isinstance(each.event, MessageReceived | WrapUpRequested)]
    assert [event.message_id for event in received] == ids
    entries = [json.loads(entry) for entry in (await store.conversation(id))[0]]
    blocks = [block for entry in entries if entry["role"] == "user" for block in entry["content"]]
    quotes = [block["text"] for block in blocks if "<caller_message>" in block.get("text", "")]
    assert len(quotes) == len(read)
    assert all(f"\n{message.text}\n" in quote for message, quote in zip(sent, quotes, strict=False))
    assert [envelope.seq for envelope in envelopes] == [*range(1, len(envelopes) + 1)]
    return len(read)
