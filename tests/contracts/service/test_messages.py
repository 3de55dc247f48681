"""Messages to delegations: the same of the service and of the fake one."""

from __future__ import annotations

import pytest

from deputize.orchestrator.delegations import Delegations
from deputize.shared.errors import Conflict, InboxFull, TooLarge
from deputize.shared.events import MessageReceived, WrapUpRequested
from deputize.shared.message import MAX_MESSAGE_BYTES, MAX_UNREAD, MessageMode
from tests.contracts.service.desks import Desk, accepted


async def test_a_message_has_an_id_and_is_reported_with_its_sender(service: Delegations) -> None:
    id = await accepted(service)
    sent = [await service.send(id, text, by="ada") for text in ("one", "two")]
    assert all(each.message_id.startswith("msg_") for each in sent)
    _, *events = [envelope.event for envelope in await service.events(id)]
    assert events == [
        MessageReceived(message_id=each.message_id, text=text, by="ada")
        for each, text in zip(sent, ("one", "two"), strict=True)
    ]


async def test_a_request_to_wrap_up_ends_what_never_ran_once(service: Delegations) -> None:
    id = await accepted(service)
    await service.send(id, "unread")
    first = await service.send(id, "", MessageMode.WRAP_UP)
    result = (await service.get(id)).result
    assert result is not None
    assert (result.status, result.termination_reason, result.attempts) == ("cancelled", "wrapped_up", 0)
    assert (result.summary, result.undelivered[0].text) == ("Wrapped up before it was started.", "unread")
    assert await service.send(id, "again", MessageMode.WRAP_UP) == first
    kept = [envelope.event for envelope in await service.events(id)]
    assert sum(isinstance(event, WrapUpRequested) for event in kept) == 1
    with pytest.raises(Conflict, match="has ended, so nothing reads a message; `deputize continue"):
        await service.send(id, "late")


async def test_what_has_ended_takes_no_message(desk: Desk, service: Delegations) -> None:
    id = await accepted(service)
    await desk.finish(id)
    for mode in MessageMode:
        with pytest.raises(Conflict, match="has ended"):
            await service.send(id, "late", mode)


async def test_size_and_number_are_bounded_but_a_request_to_wrap_up_always_comes_in(service: Delegations) -> None:
    id = await accepted(service)
    with pytest.raises(TooLarge, match=r"the text has 16,386 bytes, over 16,384; put long material into a file"):
        await service.send(id, "é" * (MAX_MESSAGE_BYTES // 2 + 1))
    for number in range(MAX_UNREAD):
        await service.send(id, str(number))
    with pytest.raises(InboxFull, match=f"{id} has {MAX_UNREAD} messages that its model has not read"):
        await service.send(id, "one more")
    await service.send(id, "enough", MessageMode.WRAP_UP)
    result = (await service.get(id)).result
    assert result is not None
    assert len(result.undelivered) == MAX_UNREAD + 1
