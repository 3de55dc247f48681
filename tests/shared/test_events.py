"""Events: the flat form in which they travel."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from deputize.shared.events import AnyEvent, Envelope, Event, Heartbeat, Transient, TurnStarted
from deputize.shared.wire import now


@pytest.mark.parametrize(
    ("seq", "event"), [(3, TurnStarted(turn=1)), (None, Heartbeat(turn=1, tool_calls=0, elapsed_ms=5))]
)
def test_an_event_lies_flat_in_its_envelope_as_text_and_as_values(seq: int | None, event: AnyEvent) -> None:
    envelope = Envelope(delegation_id="dlg_1", seq=seq, at=now(), attempt=1, event=event)
    values = envelope.to_dict()
    assert values == json.loads(envelope.to_json())
    assert (values["delegationId"], values.get("seq"), values["type"]) == ("dlg_1", seq, event.type)
    assert "event" not in values
    assert Envelope.from_json(envelope.to_json()).to_json() == envelope.to_json()


def test_every_class_of_an_event_can_be_read_again() -> None:
    classes = {*Event.__subclasses__(), *Transient.__subclasses__()} - {Transient}
    assert set(get_args(get_args(AnyEvent)[0])) == classes
