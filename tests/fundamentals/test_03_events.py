"""3. Events: everything that happens is an event; those with a number are kept and can be read again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from deputize import Orchestrator
from deputize.shared.events import Envelope, ErrorSeen, Replied, StepCompleted, StepStarted, StepUpdated, TextDelta
from deputize.shared.settings import Settings
from tests.fundamentals.stack import make_file
from tests.fundamentals.visible import types
from tests.runs.bench import call, say, script

WRITE = call("write_file", path="a.txt", content="a\n")
WAIT = call("bash", command="until [ -e go ]; do echo waiting; sleep 0.1; done")
"""A command that prints until there is a file."""


def listener(settings: Settings, heard: list[Envelope]) -> Callable[[Envelope], None]:
    """A callback that keeps what it hears, and lets WAIT end when that is heard."""

    def hear(envelope: Envelope) -> None:
        heard.append(envelope)
        if isinstance(envelope.event, StepUpdated):
            make_file(settings, envelope.delegation_id, "go")

    return hear


@pytest.mark.requirement("P-12", "P-13")
async def test_a_run_is_a_sequence_of_events_from_queued_to_finished(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    result = await orchestrator.delegate("Write a file.", model=script(tmp_path, [WRITE], [say("Done.")]))
    events = await orchestrator.service.events(result.delegation_id)
    assert types(events) == [
        "run_queued",
        "run_started",
        "turn_started",
        "replied",
        "step_started",
        "step_completed",
        "turn_started",
        "replied",
        "run_finished",
    ]


async def test_kept_events_are_numbered_without_gaps_and_a_reader_goes_on_behind_any_number(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    result = await orchestrator.delegate("Say hello.", model=script(tmp_path, [say("Hello.")]))
    events = await orchestrator.service.events(result.delegation_id)
    assert [(envelope.seq, envelope.attempt) for envelope in events] == [(1, 0), (2, 1), (3, 1), (4, 1), (5, 1)]
    assert await orchestrator.service.events(result.delegation_id, after=2) == events[2:]


async def test_who_follows_gets_what_was_then_what_is_and_stops_at_the_end(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    model = script(tmp_path, {"blocks": [WRITE], "delay": 0.2}, [say("Done.")])
    started = await orchestrator.start("Write a file.", model=model)
    async with aclosing(orchestrator.follow(started.id)) as following:
        followed = [envelope async for envelope in following if envelope.seq]
    assert followed == await orchestrator.service.events(started.id)
    assert types(followed)[-1] == "run_finished"


@pytest.mark.requirement("P-22")
async def test_words_arrive_as_they_are_sent_and_are_kept_whole(
    orchestrator: Orchestrator, settings: Settings, tmp_path: Path
) -> None:
    heard: list[Envelope] = []
    model = script(tmp_path, [WAIT], [say("One moment, please.")])
    result = await orchestrator.delegate("Say something.", model=model, on_event=listener(settings, heard))
    deltas = [(envelope.seq, envelope.event.text) for envelope in heard if isinstance(envelope.event, TextDelta)]
    assert {seq for seq, _ in deltas} == {None}
    assert "".join(text for _, text in deltas) == "One moment, please."
    kept = await orchestrator.service.events(result.delegation_id)
    assert [e.event.text for e in kept if isinstance(e.event, Replied)] == ["", "One moment, please."]


async def test_a_commands_output_is_seen_while_it_runs(
    orchestrator: Orchestrator, settings: Settings, tmp_path: Path
) -> None:
    heard: list[Envelope] = []
    model = script(tmp_path, [WAIT], [say("Done.")])
    await orchestrator.delegate("Wait.", model=model, on_event=listener(settings, heard))
    outputs = [envelope.event.metadata["output"] for envelope in heard if isinstance(envelope.event, StepUpdated)]
    assert outputs[0].startswith("waiting\n")


@pytest.mark.requirement("S002-055", "S002-063")
async def test_a_step_keeps_its_id_from_its_start_to_its_end(orchestrator: Orchestrator, tmp_path: Path) -> None:
    result = await orchestrator.delegate("Write a file.", model=script(tmp_path, [WRITE], [say("Done.")]))
    events = [envelope.event for envelope in await orchestrator.service.events(result.delegation_id)]
    (begun,) = [event.step for event in events if isinstance(event, StepStarted)]
    (ended,) = [event.step for event in events if isinstance(event, StepCompleted)]
    assert (begun.id, begun.status) == (ended.id, "running")
    assert {name: value for name, value in ended.to_dict().items() if value and name != "timestamp"} == {
        "status": "completed",
        "id": "call_1_1",
        "type": "write",
        "title": "write a.txt",
        "toolName": "write_file",
        "arguments": {"path": "a.txt", "content": "a\n"},
        "turnIndex": 1,
        "result": "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+a\n",
        "changes": [{"path": "a.txt", "change": "created", "from": None, "added": 1, "removed": 0}],
        "diff": "diff --git a/a.txt b/a.txt\nnew file mode 100644\n"
        f"index {'0' * 40}..78981922613b2afb6025042ff6bd878ac1994e85\n--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+a\n",
    }


@pytest.mark.requirement("P-22")
async def test_a_failure_is_an_event_with_the_words_of_the_result(orchestrator: Orchestrator, tmp_path: Path) -> None:
    away = {"blocks": [], "faults": [{"kind": "unavailable", "message": "the key is wrong"}]}
    result = await orchestrator.delegate("Say hello.", model=script(tmp_path, away))
    events = await orchestrator.service.events(result.delegation_id)
    assert result.termination_reason == "model_unavailable"
    assert [e.event.message for e in events if isinstance(e.event, ErrorSeen)] == result.errors
