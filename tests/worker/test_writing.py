"""What the emitter hands to the pipe, write by write, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from deputize.shared.errors import Fenced
from deputize.shared.events import Heartbeat, TextDelta, TurnStarted
from deputize.shared.request import DelegationRequest, Limits
from deputize.shared.runs.record import Claim
from deputize.worker.emit import FRAME_SECONDS, Emitter, RunUpdate
from tests.waiting import until


class Withheld:
    """Stands for the pipe: what is written stays unanswered until a test answers."""

    def __init__(self) -> None:
        self.written: list[tuple[Any, Any, Any]] = []
        self.answers: list[asyncio.Future[str]] = []
        self.published: list[str] = []
        self.flushed = 0

    def script(self, script: object, keys: Any, arguments: Any, values: Any) -> asyncio.Future[str]:
        self.written.append((keys, arguments, values))
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def publish(self, channel: str, message: str) -> None:
        self.published.append(message)

    def flush(self) -> None:
        self.flushed += 1


Held = tuple[Withheld, Emitter, list[str]]
CLAIM = Claim("a", "2:token", 2, 1, DelegationRequest(task="t"), Limits(), [b"{}"], {}, {})


@pytest.fixture
def withheld() -> Iterator[Held]:
    pipe, fenced = Withheld(), list[str]()
    emitter = Emitter(pipe, CLAIM, [], lambda: fenced.append("fenced"))  # pyright: ignore[reportArgumentType]
    yield pipe, emitter, fenced
    emitter.close()


@pytest.mark.requirement("P-13")
async def test_a_write_says_where_its_messages_stand_and_nothing_that_an_earlier_one_said(withheld: Held) -> None:
    pipe, emitter, _ = withheld
    for entry in (b'"one"', b'"two"'):
        emitter.store_message(entry)
        emitter.set_call_state("call", "state")
        emitter.set({entry.decode(): "value"})
        emitter.emit(TurnStarted(turn=1))
        emitter.hand_over()
        emitter.handed_over = False
    events = [values[:2] for _, _, values in pipe.written]
    expected = [
        RunUpdate(
            events=[(seq, event)],
            before=before,
            history=[entry],
            ledger=[("call", "state")],
            fields={entry: "value"},
        ).call("a", "2:token")
        for (seq, event), before, entry in zip(events, (1, 2), ('"one"', '"two"'), strict=True)
    ]
    assert pipe.written == expected
    assert [(seq, json.loads(event)["attempt"]) for seq, event in events] == [(2, 2), (3, 2)]


async def test_what_is_flushed_is_sent_at_once_and_only_once(withheld: Held) -> None:
    pipe, emitter, _ = withheld
    emitter.emit(TurnStarted(turn=1))
    assert (pipe.written, pipe.flushed) == ([], 0)
    emitter.flush()
    assert (len(pipe.written), pipe.flushed) == (1, 1)
    await asyncio.sleep(0)
    assert len(pipe.written) == 1


async def test_who_waits_until_all_is_kept_may_be_stopped_without_harm_to_the_others(withheld: Held) -> None:
    pipe, emitter, _ = withheld
    emitter.emit(TurnStarted(turn=1))
    stopped, other = (asyncio.create_task(emitter.settled()) for _ in range(2))
    await until(lambda: pipe.written)
    stopped.cancel()
    await asyncio.wait({stopped})
    assert not pipe.answers[0].cancelled()
    pipe.answers[0].set_result("written")
    await other
    assert len(pipe.written) == 1


async def test_a_lost_lease_is_told_once_and_nothing_is_sent_after_it(withheld: Held) -> None:
    pipe, emitter, fenced = withheld
    for turn in (1, 2):
        emitter.emit(TurnStarted(turn=turn))
        emitter.emit(Heartbeat(turn=turn, tool_calls=0, elapsed_ms=5))  # sends what was said before it
    for answer in pipe.answers:
        answer.set_result("fenced")
    await until(lambda: fenced)
    emitter.emit(TurnStarted(turn=3))
    emitter.emit(Heartbeat(turn=3, tool_calls=0, elapsed_ms=5))
    with pytest.raises(Fenced):
        await emitter.settled()
    assert (fenced, len(pipe.written), len(pipe.published)) == (["fenced"], 2, 2)


async def test_nothing_is_sent_where_nothing_was_said_or_after_the_end(withheld: Held) -> None:
    pipe, emitter, _ = withheld
    await emitter.settled()
    emitter.emit(TurnStarted(turn=1))
    emitter.delta(TextDelta, 1, "words")
    emitter.close()
    end = time.monotonic() + 2 * FRAME_SECONDS
    await until(lambda: time.monotonic() > end)
    assert (pipe.written, pipe.published) == ([], [])


async def test_an_answer_that_is_an_error_or_never_comes_is_no_loss_of_the_lease(withheld: Held) -> None:
    pipe, emitter, fenced = withheld
    complaints = list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    for turn in (1, 2):
        emitter.emit(TurnStarted(turn=turn))
        emitter.emit(Heartbeat(turn=turn, tool_calls=0, elapsed_ms=5))
    pipe.answers[0].cancel()
    pipe.answers[1].set_exception(ConnectionError("gone"))
    await asyncio.wait(pipe.answers)
    with pytest.raises(ConnectionError):
        await emitter.settled()
    assert (fenced, complaints) == ([], [])
