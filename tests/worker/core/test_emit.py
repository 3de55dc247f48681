"""The voice of a run: numbered, bounded, masked, batched."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from deputize.shared.connection import Pipe, ScriptCall
from deputize.shared.delegation import TerminationReason, Usage
from deputize.shared.errors import Fenced
from deputize.shared.event_size import MAX_EVENT_BYTES
from deputize.shared.events import AskedCall, Heartbeat, Replied, TextDelta, ThinkingDelta, TurnStarted
from deputize.shared.limits import Limits
from deputize.shared.permission import McpDetails
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import channel, history_key, ledger_key, permissions_key, record_key
from deputize.shared.runs.record import Claim
from deputize.shared.runs.store import RunStore
from deputize.shared.text import CUT_NOTE
from deputize.worker.core.emit import FRAME_SECONDS, Emitter, RunUpdate
from deputize.worker.core.outcome import RunOutcome
from deputize.worker.redis_record import RedisRecord, script_call
from tests.orchestrator.fake_permissions import STEP, question
from tests.waiting import until
from tests.worker.claimed import claimed, context_of

SECRET = "sk-very-secret-value"


class Voice:
    """An emitter of a claimed run, with everything it publishes on the channel."""

    def __init__(self, store: RunStore, pipe: Pipe, claim: Claim, heard: Any) -> None:
        self.store, self.claim, self.heard = store, claim, heard
        self.fenced = 0
        self.emitter = Emitter(RedisRecord(pipe), claim, [SECRET], self.on_fenced)

    def on_fenced(self) -> None:
        self.fenced += 1

    async def next_frame(self) -> dict[str, Any]:
        message = await until(lambda: self.heard.get_message(ignore_subscribe_messages=True, timeout=1))
        return json.loads(message["data"])


@pytest.fixture
async def voice() -> AsyncIterator[Voice]:
    async with claimed() as (store, pipe, claim), store.redis.pubsub() as heard:
        await heard.subscribe(channel(claim.id))
        voice = Voice(store, pipe, claim, heard)
        yield voice
        voice.emitter.close()


def replied(text: str, **arguments: Any) -> Replied:
    calls = [AskedCall(id="c", name="bash", arguments=arguments)]
    return Replied(turn=1, text=text, stop_reason="tool_use", usage=Usage(), tool_calls=calls)


async def test_what_is_published_in_one_tick_is_one_write(voice: Voice) -> None:
    for turn in range(1, 4):
        voice.emitter.emit(TurnStarted(turn=turn))
    voice.emitter.store_message(b'{"role":"user"}')
    voice.emitter.set({"progress": "{}"})
    voice.emitter.set({"lost": "0"})
    await voice.emitter.settled()
    assert [event.seq for event in await voice.store.events(voice.claim.id)] == [1, 2, 3, 4]
    assert await voice.store.redis.hmget(record_key(voice.claim.id), ["progress", "lost"]) == ["{}", "0"]


@pytest.mark.requirement("P-12")
async def test_an_event_has_its_delegation_its_time_and_its_order(voice: Voice) -> None:
    voice.emitter.emit(TurnStarted(turn=1))
    frame = await voice.next_frame()
    assert frame | {"at": "now"} == {
        "delegationId": voice.claim.id,
        "seq": 2,
        "at": "now",
        "attempt": 1,
        "type": "turn_started",
        "taintedBy": [],
        "turn": 1,
    }


async def test_text_deltas_are_gathered_into_frames_without_a_number(voice: Voice) -> None:
    for word in ("one ", "two ", "three"):
        voice.emitter.delta(TextDelta, 1, word)
    frame = await voice.next_frame()
    assert (frame["type"], frame["text"], "seq" in frame) == ("text_delta", "one two three", False)
    voice.emitter.emit(TurnStarted(turn=2))
    assert (await voice.next_frame())["type"] == "turn_started"  # and no frame without words before it


async def test_thoughts_and_words_are_frames_of_their_own_in_the_order_they_came(voice: Voice) -> None:
    for kind, text in ((ThinkingDelta, "hm, "), (ThinkingDelta, "so"), (TextDelta, "Thus.")):
        voice.emitter.delta(kind, 1, text)
    frames = [await voice.next_frame() for _ in range(2)]
    said = [(frame["type"], frame["text"]) for frame in frames]
    assert said == [("thinking_delta", "hm, so"), ("text_delta", "Thus.")]


async def test_what_is_cut_is_masked_before_so_that_no_part_of_a_secret_is_left(voice: Voice) -> None:
    """Wherever the cut comes: each text begins one character later."""
    whole = {f"{shift}": "x" * shift + f"{SECRET} " * 500 for shift in range(len(SECRET))}
    details = McpDetails(server="s", tool="t", arguments=whole)
    asked = question("why", STEP.model_copy(update={"arguments": whole}), voice.claim.id)
    voice.emitter.request_permission(asked.model_copy(update={"details": details}), {})
    await voice.emitter.settled()
    kept = await voice.store.redis.hget(permissions_key(voice.claim.id), "why")
    frame = json.dumps(await voice.next_frame(), ensure_ascii=False)
    for text in (kept, frame):
        assert CUT_NOTE in text
        assert SECRET[:4] not in text
    run = context_of(voice.claim, voice.emitter)
    for text in whole.values():
        run.steps.ended[:] = [STEP.model_copy(update={"title": text * 20})]
        assert CUT_NOTE in run.of_result["details"]
        assert SECRET[:4] not in run.of_result["details"]
        summary = RunOutcome(TerminationReason.COMPLETED, text * 10).masked(voice.emitter.mask.text).summary
        assert CUT_NOTE in summary
        assert SECRET[:4] not in summary


async def test_however_many_words_come_there_is_one_frame_in_a_twentieth_of_a_second(voice: Voice) -> None:
    begun = time.monotonic()

    def said_for_long() -> bool:
        voice.emitter.delta(TextDelta, 1, "word ")
        return time.monotonic() - begun > 0.4

    await until(said_for_long)
    most = (time.monotonic() - begun) / 0.05 + 1
    voice.emitter.emit(TurnStarted(turn=2))
    frames = 0
    while (await voice.next_frame())["type"] == "text_delta":
        frames += 1
    assert 0 < frames <= most
    assert FRAME_SECONDS <= 0.05


@pytest.mark.parametrize("kept", ["event", "message", "mark", "field"])
async def test_a_single_entry_is_written_though_no_caller_waits_for_it(voice: Voice, kept: str) -> None:
    redis, id = voice.store.redis, voice.claim.id
    match kept:
        case "event":
            voice.emitter.emit(TurnStarted(turn=1))
            await until(lambda: redis.exists(f"{record_key(id)}:events"))
            assert (await voice.next_frame())["turn"] == 1
            voice.emitter.emit(TurnStarted(turn=2))
            assert (await voice.next_frame())["turn"] == 2
        case "message":
            voice.emitter.store_message(b'{"role":"user"}')
            await until(lambda: redis.llen(history_key(id)))
        case "mark":
            voice.emitter.set_call_state("c1", "{}")
            await until(lambda: redis.hexists(ledger_key(id), "c1"))
        case _:
            voice.emitter.set({"progress": "{}"})
            await until(lambda: redis.hexists(record_key(id), "progress"))


async def test_live_text_comes_before_the_event_that_follows_it(voice: Voice) -> None:
    voice.emitter.delta(TextDelta, 1, "words")
    voice.emitter.emit(replied("words"))
    assert [(await voice.next_frame())["type"] for _ in range(2)] == ["text_delta", "replied"]


async def test_a_transient_frame_never_overtakes_what_was_published_before_it(voice: Voice) -> None:
    voice.emitter.emit(TurnStarted(turn=1))
    voice.emitter.emit(Heartbeat(turn=1, tool_calls=0, elapsed_ms=5))
    frames = [await voice.next_frame() for _ in range(2)]
    assert [(frame["type"], frame.get("seq")) for frame in frames] == [("turn_started", 2), ("heartbeat", None)]
    assert [event.seq for event in await voice.store.events(voice.claim.id)] == [1, 2]


@pytest.mark.requirement("P-19")
async def test_no_event_is_longer_than_its_cap_and_a_cut_is_marked(voice: Voice) -> None:
    voice.emitter.emit(replied("é" * 200_000, content="x" * 500_000, lines=["y" * 3000] * 200))
    frame = await voice.next_frame()
    assert len(json.dumps(frame, ensure_ascii=False).encode()) <= MAX_EVENT_BYTES
    assert len(frame["text"]) < 200_000
    assert frame["toolCalls"][0]["name"] == "bash"


@pytest.mark.requirement("P-17")
async def test_a_secret_value_never_leaves_in_an_event(voice: Voice) -> None:
    voice.emitter.emit(replied(f"the key is {SECRET}", command=f"curl -H {SECRET}"))
    frame = await voice.next_frame()
    assert SECRET not in json.dumps(frame)
    assert frame["text"] == "the key is ***"


@pytest.mark.requirement("P-17")
async def test_a_secret_that_arrives_in_two_frames_leaves_in_none(voice: Voice) -> None:
    voice.emitter.delta(TextDelta, 1, f"the key is {SECRET[:9]}")
    assert (await voice.next_frame())["text"] == "the key is "
    voice.emitter.delta(TextDelta, 1, f"{SECRET[9:]}, is it not?")
    assert (await voice.next_frame())["text"] == "***, is it not?"


async def test_what_only_looks_like_the_beginning_of_a_secret_is_published_at_the_turns_end(voice: Voice) -> None:
    voice.emitter.delta(TextDelta, 1, f"keys begin with {SECRET[:3]}")
    assert (await voice.next_frame())["text"] == "keys begin with "
    voice.emitter.emit(replied("words"))
    assert [(await voice.next_frame())["text"] for _ in range(2)] == [SECRET[:3], "words"]


@pytest.mark.requirement("P-17")
async def test_a_secret_with_quotes_leaves_in_no_event_and_the_event_stays_json(voice: Voice) -> None:
    voice.emitter.mask.add(['pa"ss\\word', "another-secret"])
    voice.emitter.emit(replied('it is pa"ss\\word', command="echo another-secret"))
    frame = await voice.next_frame()
    assert (frame["text"], frame["toolCalls"][0]["arguments"]) == ("it is ***", {"command": "echo ***"})


@pytest.mark.requirement("P-17")
async def test_a_secret_where_an_event_is_cut_leaves_no_piece(voice: Voice) -> None:
    for shift in (0, 7, 14):  # wherever the cut is, at one of them it would be inside the secret
        voice.emitter.emit(replied("x" * shift + SECRET * 50_000))
        text = (await voice.next_frame())["text"]
        assert set(text[shift:].partition("…")[0]) == {"*"}


async def test_after_the_lease_is_lost_nothing_more_is_published(voice: Voice) -> None:
    await voice.store.redis.hset(record_key(voice.claim.id), "fence", "2:other")
    voice.emitter.emit(TurnStarted(turn=1))
    with pytest.raises(Fenced):
        await voice.emitter.settled()
    voice.emitter.emit(TurnStarted(turn=2))
    voice.emitter.delta(TextDelta, 2, "unheard")
    with pytest.raises(Fenced):
        await voice.emitter.settled()
    assert [event.seq for event in await voice.store.events(voice.claim.id)] == [1]
    assert voice.fenced == 1


async def test_a_run_that_is_handed_over_publishes_what_is_left_and_nothing_more(voice: Voice) -> None:
    voice.emitter.emit(TurnStarted(turn=1))
    voice.emitter.hand_over()
    voice.emitter.emit(TurnStarted(turn=2))
    voice.emitter.set_call_state("call", "finished")
    voice.emitter.emit(Heartbeat(turn=2, tool_calls=0, elapsed_ms=5))
    await voice.emitter.settled()
    assert [event.seq for event in await voice.store.events(voice.claim.id)] == [1, 2]
    assert not await voice.store.redis.exists(ledger_key(voice.claim.id))
    assert (await voice.next_frame())["turn"] == 1
    assert await voice.heard.get_message(ignore_subscribe_messages=True) is None


# What the emitter hands to the pipe, write by write, and what it makes of the answers.


class Withheld:
    """Stands for the pipe: what is written is sent when a test sends it, and unanswered until a test answers."""

    def __init__(self) -> None:
        self.queued: list[Callable[[], ScriptCall]] = []
        self.written: list[ScriptCall] = []
        self.answers: list[asyncio.Future[str]] = []
        self.published: list[str] = []
        self.flushed = 0

    def deferred(self, script: object, call: Callable[[], ScriptCall], *, lasts: object) -> asyncio.Future[str]:
        self.queued.append(call)
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def send(self) -> None:
        self.written += [call() for call in self.queued]
        self.queued.clear()

    def publish(self, channel: str, message: str) -> None:
        self.published.append(message)

    def flush(self) -> None:
        self.flushed += 1


Held = tuple[Withheld, Emitter, list[str]]
CLAIM = Claim("a", "2:token", 2, 1, DelegationRequest(task="t"), Limits(), [b"{}"], {}, {})


@pytest.fixture
def withheld() -> Iterator[Held]:
    pipe, fenced = Withheld(), list[str]()
    emitter = Emitter(RedisRecord(pipe), CLAIM, [], lambda: fenced.append("fenced"))  # pyright: ignore[reportArgumentType]
    yield pipe, emitter, fenced
    emitter.close()


@pytest.mark.requirement("P-13")
async def test_a_write_has_its_number_and_nothing_of_an_earlier_one(withheld: Held) -> None:
    pipe, emitter, _ = withheld
    for entry in (b'"one"', b'"two"'):
        emitter.store_message(entry)
        emitter.set_call_state("call", "state")
        emitter.set({entry.decode(): "value"})
        emitter.emit(TurnStarted(turn=1))
        pipe.send()
    events = [values[:2] for _, _, values in pipe.written]
    expected = [
        script_call(
            RunUpdate(
                number,
                events=[(seq, event)],
                history=[entry],
                ledger={"call": "state"},
                fields={entry: "value"},
            ),
            "a",
            "2:token",
        )
        for (seq, event), number, entry in zip(events, (1, 2), ('"one"', '"two"'), strict=True)
    ]
    assert pipe.written == expected
    assert [(seq, json.loads(event)["attempt"]) for seq, event in events] == [(2, 2), (3, 2)]


async def test_what_has_a_waiter_is_sent_at_once_and_only_once(withheld: Held) -> None:
    pipe, emitter, _ = withheld
    emitter.emit(TurnStarted(turn=1))
    assert (len(pipe.queued), pipe.flushed) == (1, 0)
    emitter.flush()
    assert (len(pipe.queued), pipe.flushed) == (1, 1)
    pipe.send()
    emitter.flush()
    assert (pipe.queued, len(pipe.written)) == ([], 1)


async def test_what_follows_joins_a_write_until_that_is_sent(withheld: Held) -> None:
    pipe, emitter, _ = withheld
    emitter.emit(TurnStarted(turn=1))
    await asyncio.sleep(0)
    emitter.store_message(b'"one"')
    emitter.set({"progress": "{}"})
    pipe.send()
    emitter.emit(TurnStarted(turn=2))
    emitter.store_message(b'"two"')
    pipe.send()
    of_first, of_second = [arguments for _, arguments, _ in pipe.written]
    assert [of_first[name] for name in ("number", "events", "history", "fields")] == [1, 1, 1, 1]
    assert [of_second[name] for name in ("number", "events", "history", "fields")] == [2, 1, 1, 0]


async def test_what_follows_live_text_is_no_part_of_the_write_before_it(withheld: Held) -> None:
    pipe, emitter, _ = withheld
    emitter.emit(TurnStarted(turn=1))
    emitter.delta(TextDelta, 1, "words")
    emitter.emit(replied("words"))
    pipe.send()
    assert ([arguments["events"] for _, arguments, _ in pipe.written], len(pipe.published)) == ([1, 1], 1)


async def test_what_the_ledger_would_only_lose_again_is_not_written(withheld: Held) -> None:
    pipe, emitter, _ = withheld
    emitter.set_call_state("first", "started")
    pipe.send()
    for call, state in (("first", "finished"), ("second", "finished"), ("", ""), ("third", "started")):
        emitter.set_call_state(call, state)
    pipe.send()
    assert [values for _, _, values in pipe.written] == [["first", "started"], ["", "", "third", "started"]]


async def test_who_waits_until_all_is_kept_may_be_stopped_without_harm_to_the_others(withheld: Held) -> None:
    pipe, emitter, _ = withheld
    emitter.emit(TurnStarted(turn=1))
    stopped, other = (asyncio.create_task(emitter.settled()) for _ in range(2))
    await until(lambda: pipe.flushed == 2)
    stopped.cancel()
    await asyncio.wait({stopped})
    assert not pipe.answers[0].cancelled()
    pipe.answers[0].set_result("written")
    await other
    assert len(pipe.queued) == 1


async def test_a_lost_lease_is_reported_once_and_nothing_is_sent_after_it(withheld: Held) -> None:
    pipe, emitter, fenced = withheld
    for turn in (1, 2):
        emitter.emit(TurnStarted(turn=turn))
        emitter.emit(Heartbeat(turn=turn, tool_calls=0, elapsed_ms=5))  # sends what was emitted before it
    for answer in pipe.answers:
        answer.set_result("fenced")
    await until(lambda: fenced)
    emitter.emit(TurnStarted(turn=3))
    emitter.emit(Heartbeat(turn=3, tool_calls=0, elapsed_ms=5))
    with pytest.raises(Fenced):
        await emitter.settled()
    assert (fenced, len(pipe.queued), len(pipe.published)) == (["fenced"], 2, 2)


async def test_nothing_is_sent_without_an_entry_or_after_the_end(withheld: Held) -> None:
    pipe, emitter, _ = withheld
    await emitter.settled()
    emitter.delta(TextDelta, 1, "words")
    emitter.close()
    end = time.monotonic() + 2 * FRAME_SECONDS
    await until(lambda: time.monotonic() > end)
    assert (pipe.queued, pipe.published) == ([], [])


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


@pytest.mark.parametrize("ways", [{}, {"retention": 1, "retry_ms": 1}])
async def test_a_last_event_either_ends_the_run_or_is_followed_by_another_try(
    voice: Voice, ways: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="either retention or retry_ms"):
        await voice.emitter.end(replied("."), {}, **ways)


async def test_an_event_at_the_end_is_in_the_last_write_and_before_the_last_event(withheld: Held) -> None:
    pipe, emitter, _ = withheld
    emitter.emit_at_end(replied("late"))
    emitter.emit(TurnStarted(turn=1))
    pipe.send()
    ended = asyncio.create_task(emitter.end(replied("last"), {}, retention=1))
    await asyncio.sleep(0)
    pipe.send()
    pipe.answers[-1].set_result("written")
    await ended
    of_turn, at_end = (str(values) for _, _, values in pipe.written)
    assert "late" not in of_turn
    assert 0 < at_end.index("late") < at_end.index("last")
