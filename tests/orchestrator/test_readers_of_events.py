"""Readers that choose among the events on purpose: which ones each of them shows, so that a new event is placed too."""

from __future__ import annotations

from deputize.orchestrator.cli.live import WITHOUT_LINE, EventLines
from deputize.orchestrator.cli.policy import recorded_calls
from deputize.orchestrator.cli.show import LEFT_OUT, transcript
from deputize.orchestrator.mcp.call import NEWS, REPORTED
from tests.wire.samples import EVENTS, STEP

ALL = {"line", "transcript"}
PLACES = {
    "run_queued": ALL,
    "run_started": ALL | {"reported", "replay"},
    "run_resumed": ALL | {"reported", "news"},
    "run_retried": ALL | {"reported"},
    "run_finished": ALL,
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
    "message_received": ALL,
    "message_read": ALL | {"reported"},
    "wrap_up_requested": ALL | {"reported"},
    "step_completed": ALL | {"stream", "reported"},
    "check_completed": ALL | {"reported"},
    "delivered": {"line", "transcript"},
    "progress": ALL,
    "error": ALL,
    "heartbeat": set[str](),
}
"""``line``: of commands that follow; ``stream``: with `--stream`; ``transcript``: of `show`; ``replay``: of `policy
replay`; others: of MCP calls."""
OUTPUT = {
    "step_updated": {"metadata": {"output": "a line\n"}},
    "step_completed": {"step": STEP.model_copy(update={"type": "bash", "result": "a line\n"})},
}
"""Samples have no output of a command."""
REPLIED = EVENTS["replied"].to_dict()
"""A reply with a call, which is judged with what precedes it."""


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


def test_each_event_has_its_places() -> None:
    assert {type: places(type) for type in EVENTS} == PLACES


def test_a_choice_names_only_events() -> None:
    assert (NEWS | REPORTED | WITHOUT_LINE | LEFT_OUT) - EVENTS.keys() == set()
