"""The long texts of a run are stored once and compressed, and every reader has them as they were."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeServer
from pydantic_core import to_json

from deputize.shared.bus import Bus, follow
from deputize.shared.connection import Lasts, Pipe, Script, ScriptCall
from deputize.shared.delegation import Step, StepStatus, Usage
from deputize.shared.errors import ErrorType
from deputize.shared.events import Envelope, StepCompleted, TurnStarted
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import INDEX, LEASES, channel, events_key, history_key, ledger_key, record_key
from deputize.shared.runs.record import LONG, Claim, compressed, published, reference
from deputize.shared.runs.store import RECORD, WRITING, RunStore
from deputize.shared.wire import now
from deputize.worker.core.conversation import Conversation
from deputize.worker.core.emit import Emitter, RunUpdate
from deputize.worker.core.ledger import Ledger
from deputize.worker.core.run_context import StepLog
from deputize.worker.models.base import Call, Reply
from deputize.worker.redis_record import RedisRecord, script_call
from deputize.worker.tools.base import ToolResult
from tests.runs.bench import Bench, call, say, script
from tests.waiting import until

ID = "dlg_01m89y4tt504av9v7fgd150b1e"
REQUEST = DelegationRequest(task="do it")
TEXT = "".join(f'{number}: "naïve" \\ tab\t☃ \x01{number}:0:9\x01\n' for number in range(60))
SECRET = "sk-very-secret-value"
OLDER = Path(__file__).with_name("older_delegation.json")


def step_of(key: str, result: ToolResult) -> Step:
    return Step(
        id=key,
        type="read",
        title="t",
        status=StepStatus.COMPLETED,
        tool_name="read_file",
        turn_index=1,
        timestamp=now(),
        result=result.content,
        error=result.error,
    )


def ended(text: str) -> str:
    event = StepCompleted(step=step_of("call_1_1", ToolResult(text)))
    return Envelope(delegation_id=ID, seq=7, at=now(), attempt=1, event=event).to_json()


def answer(*texts: str) -> str:
    return to_json([{"type": "tool_result", "content": text} for text in texts]).decode()


@pytest.mark.parametrize("length", [0, LONG, 60_000])
def test_an_event_is_read_as_it_was_published_and_a_long_one_is_stored_in_less(length: int) -> None:
    event = ended((TEXT * 30)[:length])
    stored = compressed(event)
    assert bool(stored) == (length > 0)
    assert len(stored) < len(event) / 2
    assert published(stored or event) == published(event) == event


@pytest.mark.parametrize(
    ("text", "said", "shared"),
    [
        (TEXT, answer(TEXT), True),
        (TEXT, answer(TEXT, "short", TEXT), True),
        (TEXT, answer(f"Error: it ended with 1\n{TEXT}"), True),
        (TEXT[: LONG // 2], answer(TEXT[: LONG // 2]), False),
        ("", answer(""), False),
    ],
)
def test_what_repeats_the_result_of_a_call_refers_to_it_and_is_read_as_it_was(
    text: str, said: str, *, shared: bool
) -> None:
    stands_for = reference(7, event := ended(text), text)
    assert (len(stands_for) == 1) == shared
    for piece, short in stands_for.items():
        begin, end = map(int, short.strip("\x01").split(":")[1:])
        assert (event[begin:end], said.count(piece) > 0, piece in said.replace(piece, short)) == (piece, True, False)


def test_what_an_event_has_only_in_part_is_stored_as_a_whole() -> None:
    assert reference(7, ended(TEXT[:-1]), TEXT) == {}


# Writes of a run, one by one, and a worker that is lost between any two of them.


class Recording:
    """A pipe that keeps what is sent."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.written: list[ScriptCall] = []

    def deferred(self, script: Script, call: Callable[[], ScriptCall], *, lasts: Lasts = bool) -> asyncio.Future[Any]:
        def sent() -> ScriptCall:
            self.written.append(call())
            return self.written[-1]

        return self.pipe.deferred(script, sent, lasts=lasts)

    def flush(self) -> None:
        self.pipe.flush()


@asynccontextmanager
async def fresh() -> AsyncIterator[tuple[RunStore, Pipe, Claim]]:
    """A Redis in which the delegation is claimed; always by the same attempt."""
    server = FakeServer()
    async with (
        FakeAsyncRedis(server=server, decode_responses=True) as redis,
        FakeAsyncRedis(server=server, decode_responses=True) as writing,
        Pipe(writing, WRITING) as pipe,
    ):
        store = RunStore(redis, 60)
        await store.accept([(ID, REQUEST, REQUEST.limits)], 30)
        claim = await store.claim(ID, "token", "worker-1", 10)
        assert claim is not None
        yield store, pipe, claim


RESULTS = {
    "call_1_1": ToolResult(TEXT),
    "call_1_2": ToolResult(TEXT * 2, error="it ended with 1", error_type=ErrorType.EXECUTION_FAILED),
    "call_2_1": ToolResult(f"the key is {SECRET}\n{TEXT}"),
    "call_2_2": ToolResult(TEXT),
    "call_3_1": ToolResult("short"),
}


async def work(emitter: Emitter, each_alone: bool) -> list[bytes]:
    """Three turns of calls; returns the conversation. ``each_alone``: every change is a write of its own."""

    async def written() -> None:
        if each_alone:
            await emitter.settled()

    conversation = Conversation((), emitter.store_message, task=("do it",))
    ledger, steps = Ledger(emitter, {}), StepLog(emitter)
    for turn in range(1, 4):
        calls = [Call(f"toolu_{key}", "read_file", {}, key=key) for key in RESULTS if key.startswith(f"call_{turn}")]
        emitter.emit(TurnStarted(turn=turn))
        await written()
        blocks = [{"type": "tool_use", "id": each.id, "name": each.name, "input": {}} for each in calls]
        conversation.add(Reply(content=blocks, calls=calls, stop_reason="tool_use", usage=Usage()))
        await written()
        for each in calls:
            steps.end(step_of(each.key, RESULTS[each.key]), RESULTS[each.key])
            ledger.finish(each.key, RESULTS[each.key])
            await written()
        conversation.answer([(each, RESULTS[each.key]) for each in calls])
        ledger.clear()
        await written()
    await emitter.settled()
    return conversation.messages


@pytest.mark.requirement("P-16")
@pytest.mark.parametrize("each_alone", [True, False])
async def test_a_worker_that_is_lost_between_any_two_writes_leaves_every_result_as_it_was(*, each_alone: bool) -> None:
    async with fresh() as (_, pipe, claim):
        recording: Any = Recording(pipe)
        messages = await work(Emitter(RedisRecord(recording), claim, [SECRET], lambda: None), each_alone)
    results, messages_kept = dict.fromkeys(RESULTS, 0), 0
    for number in range(len(recording.written) + 1):
        async with fresh() as (store, pipe, _):
            for written in recording.written[:number]:
                assert await pipe.script(RECORD, *written) == "written"
            await store.redis.zadd(LEASES, {ID: 0})
            assert [found.kind for found in await store.reap(60)] == ["lapsed"]
            next_one = await store.claim(ID, "other", "worker-2", 10)
            assert next_one is not None
            assert next_one.history == messages[: len(next_one.history)]
            assert [*map(str.encode, (await store.conversation(ID))[0])] == next_one.history
            messages_kept = len(next_one.history)
            left = Ledger(Emitter(RedisRecord(pipe), next_one, [], lambda: None), next_one.ledger)
            for key in next_one.ledger:
                assert left.finished(key) == RESULTS[key]
                results[key] += 1
    assert messages_kept == len(messages) == 7
    assert all(results.values()) == each_alone  # otherwise a turn is one write, and its ledger is never seen


async def test_a_result_is_once_in_clear_in_redis_and_no_event_has_its_secret() -> None:
    async with fresh() as (store, pipe, claim):
        recording: Any = Recording(pipe)
        await work(Emitter(RedisRecord(recording), claim, [SECRET], lambda: None), each_alone=True)
        line = to_json(TEXT)[1:-1].decode()
        seen = [str(value).count(line) for _, _, values in recording.written for value in values]
        assert sum(seen) == 5 + 1  # in four events, twice in one; and in the ledger what is masked in its event
        kept = await store.redis.lrange(history_key(ID), 0, -1)
        assert [entry.count(line) for entry in kept] == [0] * 7
        assert [SECRET in entry for entry in kept].index(True) == 4  # as the model has it
        texts = [published(fields["e"]) for _, fields in await store.redis.xrange(events_key(ID))]
        assert not any(SECRET in text for text in texts)
        assert [envelope.seq for envelope in await store.events(ID)] == [*range(1, len(texts) + 1)]


async def test_a_text_is_referred_to_until_its_turn_is_answered() -> None:
    async with fresh() as (store, pipe, claim):
        emitter, message = Emitter(RedisRecord(pipe), claim, [], lambda: None), answer(TEXT)
        emitter.emit(StepCompleted(step=step_of("call_1_1", ToolResult(TEXT))), TEXT)
        emitter.store_message(message.encode())
        emitter.set_call_state("", "")
        emitter.store_message(message.encode())
        await emitter.settled()
        first, second = await store.redis.lrange(history_key(ID), 0, -1)
        assert (len(first) < 100, second) == (True, message)
        assert (await store.conversation(ID))[0] == [message] * 2


async def test_of_two_texts_that_begin_alike_the_whole_one_is_referred_to() -> None:
    async with fresh() as (store, pipe, claim):
        emitter, longer = Emitter(RedisRecord(pipe), claim, [], lambda: None), f"{TEXT}{'and more' * 200}"
        for text in (TEXT, longer):
            emitter.emit(StepCompleted(step=step_of("call_1_1", ToolResult(text))), text)
        emitter.store_message(answer(longer, TEXT).encode())
        await emitter.settled()
        [stored] = await store.redis.lrange(history_key(ID), 0, -1)
        assert len(stored) < 150
        assert (await store.conversation(ID))[0] == [answer(longer, TEXT)]


async def test_a_long_event_is_read_later_as_it_was_heard_though_it_is_stored_in_less() -> None:
    async with fresh() as (store, pipe, claim), store.redis.pubsub() as heard, Bus(store.redis) as bus:
        await heard.subscribe(channel(ID))
        emitter = Emitter(RedisRecord(pipe), claim, [], lambda: None)
        emitter.emit(StepCompleted(step=step_of("call_1_1", ToolResult(TEXT * 10))), TEXT * 10)
        message = await until(lambda: heard.get_message(ignore_subscribe_messages=True, timeout=1))
        assert json.loads(message["data"])["step"]["result"] == TEXT * 10
        async with aclosing(follow(bus, store, ID, after=1)) as followed:
            assert (await anext(followed)).to_json() == message["data"]
        stored = (await store.redis.xrange(events_key(ID)))[-1][1]["e"]
        assert len(stored) < len(TEXT * 10) / 3


async def test_a_write_after_one_that_redis_has_lost_is_refused() -> None:
    async with fresh() as (store, pipe, claim):
        lost = RunUpdate(2, history=['{"role":"user"}'])
        assert await pipe.script(RECORD, *script_call(lost, ID, claim.fence)) == "fenced"
        assert (await store.conversation(ID))[0] == []
        assert await store.redis.zscore(LEASES, ID) == 0


async def test_a_delegation_that_continues_another_has_its_conversation_byte_by_byte(
    bench: Bench, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text(TEXT)
    model = script(tmp_path, [call("read_file", path="a.txt")], [say("read")])
    result = await bench.run(model=model, workspace={"kind": "directory", "path": str(source)})
    [step] = await bench.steps(result)
    assert len(step.result) > len(TEXT)
    entries, _ = await bench.store.conversation(result.delegation_id)
    assert json.loads(entries[2])["content"][0]["content"] == step.result
    raw = await bench.store.redis.lrange(history_key(result.delegation_id), 0, -1)
    assert len(raw[2]) < LONG
    further = script(tmp_path, [say("gone on")])
    continued = await bench.run("go on", model=further, continues=result.delegation_id)
    assert (await bench.store.conversation(continued.delegation_id))[0][: len(entries)] == entries


# Records of an earlier version, which wrote every text as it was.


async def test_an_unfinished_delegation_of_an_older_version_is_gone_on_with() -> None:
    older = json.loads(OLDER.read_text("utf-8"))
    server = FakeServer()
    async with (
        FakeAsyncRedis(server=server, decode_responses=True) as redis,
        FakeAsyncRedis(server=server, decode_responses=True) as writing,
        Pipe(writing, WRITING) as pipe,
    ):
        await redis.hset(record_key(ID), mapping=older["record"])
        for number, event in older["events"]:
            await redis.xadd(events_key(ID), {"e": event}, id=number)
        await redis.rpush(history_key(ID), *older["history"])
        await redis.hset(ledger_key(ID), mapping=older["ledger"])
        await redis.zadd(INDEX, {ID: 0})
        store = RunStore(redis, 60)
        claim = await store.claim(ID, "token", "worker-1", 10)
        assert claim is not None
        assert claim.history == [entry.encode() for entry in older["history"]]
        assert claim.ledger == older["ledger"]
        written = [Envelope.from_json(event) for _, event in older["events"]]  # with the fields that are new since
        assert [envelope.to_json() for envelope in await store.events(ID)] == [each.to_json() for each in written]
        emitter, key = Emitter(RedisRecord(pipe), claim, [], lambda: None), "call_2_1"
        result = Ledger(emitter, claim.ledger).finished(key)
        assert result is not None
        assert result.content.startswith('     1|0: "naïve"')
        conversation = Conversation(claim.history, emitter.store_message)
        conversation.answer([(each, result) for each in conversation.unanswered(2)])
        emitter.emit(TurnStarted(turn=3))
        await emitter.settled()
        assert [envelope.seq for envelope in await store.events(ID)] == [*range(1, 13)]
        assert [*map(str.encode, (await store.conversation(ID))[0])] == conversation.messages
