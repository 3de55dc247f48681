"""Lines of events, and lines that are longer than a terminal is wide."""

from __future__ import annotations

import pytest

from deputize.orchestrator.cli.event_lines import EventLines
from deputize.orchestrator.cli.formatting import wrapped
from deputize.shared.delegation import Usage
from deputize.shared.events import AnyEvent, Envelope, ErrorSeen, ModelRetried, Replied, Waiting
from deputize.shared.wire import now

ID = "dlg_01m87ws0000000000000h3yk00"


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("short", ["short"]),
        ("", [""]),
        ("the command ended with exit code 1", ["the command ended", "  with exit code 1"]),
        ("  and indented ones as well", ["  and indented ones", "  as well"]),
        (f"detached; {ID} goes on", ["detached;", f"  {ID}", "  goes on"]),
        (f"come back with `deputize watch {ID}`.", ["come back with", f"  `deputize watch {ID}`."]),
        (f"  to take over: deputize apply {ID}", ["  to take over:", f"  deputize apply {ID}"]),
        (f"to take over: A=/x /v/deputize apply {ID}", ["to take over:", f"  A=/x /v/deputize apply {ID}"]),
    ],
)  # fmt: skip
def test_words_ids_and_commands_stay_whole(line: str, parts: list[str]) -> None:
    assert wrapped(line, 20, hang=2) == parts


@pytest.mark.parametrize("width", range(4, 45))
def test_a_hard_limit_holds_for_every_word_and_loses_nothing(width: int) -> None:
    line = f"run `deputize show {ID}` in   /a/very/long/path/without/any/blank or not"
    parts = wrapped(line, width, hang=2, hard=True)
    assert max(map(len, parts)) <= width
    assert "".join("".join(parts).split()) == "".join(line.split())


def test_an_error_of_the_endpoint_is_printed_once_and_then_counted() -> None:
    lines = EventLines(stream=False)
    down = "HTTP 529 from http://model: overloaded."

    def printed(event: AnyEvent, seq: int = 1) -> list[str]:
        return lines.of(Envelope(delegation_id="dlg_1", seq=seq, at=now(), attempt=1, event=event))

    def retried(error: str) -> list[str]:
        return printed(ModelRetried(turn=1, error=error, delay_seconds=2))

    assert retried(down) == [f"turn 1  the model is asked again in 2.0 s: {down}"]
    assert printed(Waiting(why="rate", detail=down)) == ["waits for the model's endpoint"]
    assert retried(down) == ["turn 1  the model is asked again in 2.0 s: the same error, 2 times so far"]
    assert retried("HTTP 500") == ["turn 1  the model is asked again in 2.0 s: HTTP 500"]
    assert printed(Waiting(why="rate", detail=down)) == [f"waits for the model's endpoint: {down}"]
    ended = f"its time ended while it waited for the model's endpoint: {down}"
    assert printed(ErrorSeen(message=ended, kind="rate")) == [ended]
    printed(Replied(turn=1, stop_reason="end_turn", usage=Usage()))
    assert retried("HTTP 500") == ["turn 1  the model is asked again in 2.0 s: HTTP 500"]
