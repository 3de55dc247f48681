"""Where each event is shown, and what it changes in the state of its delegation; a new one by its line alone."""

from __future__ import annotations

from deputize.orchestrator.cli.live import WITHOUT_LINE, EventLines
from deputize.orchestrator.cli.policy import recorded_calls
from deputize.orchestrator.cli.show import LEFT_OUT, transcript
from deputize.orchestrator.mcp.call import NEWS, REPORTED
from deputize.orchestrator.run_states import state_of
from deputize.shared.events import Envelope
from deputize.shared.wording import line_of
from tests.wire.samples import EVENTS, STEP

ALL = {"line", "transcript"}
PLACES = {
    "run_started": ALL | {"reported", "replay"},
    "run_resumed": ALL | {"reported", "news"},
    "run_retried": ALL | {"reported"},
    "turn_started": {"transcript", "replay"},
    "text_delta": {"stream"},
    "thinking_delta": set[str](),
    "replied": {"stream", "transcript", "replay"},
    "model_retried": ALL | {"reported"},
    "waiting": ALL | {"news"},
    "resumed_waiting": ALL | {"news"},
    "step_started": {"stream"},
    "step_updated": {"stream"},
    "permission_requested": ALL | {"news"},
    "permission_answered": {"line", "reported", "news"},
    "message_read": ALL | {"reported"},
    "wrap_up_requested": ALL | {"reported"},
    "step_completed": ALL | {"stream", "reported"},
    "check_completed": ALL | {"reported"},
    "delivered": {"line", "transcript"},
    "heartbeat": set[str](),
}
"""Of the events whose places are not ``ALL``. ``line``: of commands that follow; ``stream``: with `--stream`;
``transcript``: of `show`; ``replay``: of `policy replay`; others: of MCP calls."""
OUTPUT = {
    "step_updated": {"metadata": {"output": "a line\n"}},
    "step_completed": {"step": STEP.model_copy(update={"type": "bash", "result": "a line\n"})},
}
"""Samples have no output of a command."""
REPLIED = EVENTS["replied"].to_dict()
"""A reply with a call, which is judged with what precedes it."""


RUNNING = {"status": "running"}
STATES: dict[str, dict[str, str]] = {
    "run_queued": {"now": "waits for …r8s9t3"},
    **dict.fromkeys(("run_started", "permission_answered", "resumed_waiting"), RUNNING | {"now": ""}),
    "step_started": RUNNING | {"now": "… edit pricing.py"},
    "step_completed": RUNNING | {"now": "✓ edit pricing.py"},
    "permission_requested": {"status": "waiting", "now": "asks: edit pricing.py"},
    **dict.fromkeys(("run_resumed", "turn_started"), RUNNING),
    **{type: {} for type in ("replied", "message_received", "message_read", "run_finished")},
}
STATUSES = {"run_retried": "queued", "waiting": "waiting"}
"""Of events whose line is what the delegation does now."""


def places(type: str) -> set[str]:
    envelope = EVENTS[type]
    envelope = envelope.model_copy(update={"event": envelope.event.model_copy(update=OUTPUT.get(type, {}))})
    plain, streaming = EventLines(stream=False).of(envelope), EventLines(stream=True)
    found = {
        "line": plain != [],
        "stream": streaming.of(envelope) != plain or streaming.unfinished(envelope.delegation_id) != "",
        "transcript": [*transcript([envelope])] != [],
        "reported": type in REPORTED,
        "news": type in NEWS,
        "replay": recorded_calls([envelope.to_dict(), REPLIED]) != recorded_calls([REPLIED]),
    }
    return {place for place, shown in found.items() if shown}


def test_each_event_is_in_its_places() -> None:
    assert {type: places(type) for type in EVENTS} == {type: PLACES.get(type, ALL) for type in EVENTS}


def test_each_event_changes_the_state_as_its_line_states_or_as_written_here() -> None:
    found = {type: state_of(envelope) for type, envelope in EVENTS.items()}
    lines = {type: line_of(envelope.event) for type, envelope in EVENTS.items()}
    expected = {
        type: ({"status": STATUSES[type]} if type in STATUSES else {}) | ({"now": line} if line else {})
        for type, line in lines.items()
    }
    assert found == expected | STATES


def test_a_permission_request_of_a_child_leaves_the_state_of_its_parent() -> None:
    asked, answered = EVENTS["permission_requested"], EVENTS["permission_answered"]
    of_child = {"path": [asked.delegation_id, "dlg_01k9zxv3q8h4t7m2n5p6r8s9tz"]}

    def state(envelope: Envelope, path: dict[str, list[str]]) -> dict[str, str]:
        return state_of(envelope.model_copy(update={"event": envelope.event.model_copy(update=path)}))

    assert (state(asked, of_child), state(answered, of_child)) == ({}, {})
    assert state(answered, {"path": []}) == RUNNING | {"now": ""}  # that of an older worker


def test_a_choice_names_only_events() -> None:
    assert (NEWS | REPORTED | WITHOUT_LINE | LEFT_OUT | PLACES.keys() | STATES.keys()) - EVENTS.keys() == set()
