"""What the model calls of one run have in common, over the calls and the gaps between them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext

from fakeredis import FakeAsyncRedis
from pydantic import SecretStr

from deputize.shared.connection import Pipe
from deputize.shared.delegation import Usage
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import WRITING, RunStore
from deputize.worker.conversation import Conversation
from deputize.worker.emit import Emitter
from deputize.worker.fleet.gate import EndpointWait, Outages, PrefixWait, SharedPrefixes
from deputize.worker.model_calls import ModelCalls, Spending
from deputize.worker.models import close_models
from deputize.worker.models.anthropic import AnthropicModel
from deputize.worker.models.caching import FIVE_MINUTES, Retention
from deputize.worker.prompt import first_message
from deputize.worker.run_context import RunContext
from tests.fake_model import FakeModel, PromptCache, Turn, text

TASK = DelegationRequest(task="the task", context="words of the context " * 300)


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@asynccontextmanager
async def calls_of(fake: FakeModel, clock: Clock) -> AsyncGenerator[tuple[ModelCalls, list[Usage]]]:
    """The model calls of a claimed run, and the usages that they count."""
    counted: list[Usage] = []
    async with FakeAsyncRedis(decode_responses=True) as redis, Pipe(redis, WRITING) as pipe:
        store = RunStore(redis, 60)
        id = (await store.accept([(new_id(), TASK, TASK.limits)], 30))[0].id
        claim = await store.claim(id, "token", "worker-1", 10)
        assert claim is not None
        emit = Emitter(pipe, claim, [], lambda: None)
        endpoint = {"ANTHROPIC_API_KEY": SecretStr(fake.key), "ANTHROPIC_BASE_URL": SecretStr(fake.url)}
        run = RunContext.of(claim, emit)
        calls = ModelCalls(
            run=run,
            model=AnthropicModel("claude-sonnet-5-5", endpoint),
            system="A rule of the system prompt. " * 200,
            tools=(),
            conversation=Conversation(task=first_message(TASK)),
            wait=EndpointWait(Outages(pipe), emit.emit, emit.set, lambda: run.meter.time_for_summary),
            shared=PrefixWait(SharedPrefixes(pipe), emit.emit, nullcontext),
            count=counted.append,
            spending=Spending(run, pipe, ()),
            retention=Retention(clock),
        )
        run.meter.set_price(calls.model)
        yield calls, counted
        emit.close()
    await close_models()


async def test_after_a_gap_of_five_minutes_entries_are_kept_and_reserved_for_an_hour() -> None:
    clock = Clock()
    async with FakeModel([Turn([text("done")])], cache=PromptCache()) as fake, calls_of(fake, clock) as (calls, _):
        for turn, gap in enumerate((0, FIVE_MINUTES - 1, FIVE_MINUTES + 1, 0), 1):
            clock.seconds += gap
            reply = await calls.reply(turn)
            assert calls.run.meter.hour_writes is (turn > 2)
            calls.conversation.add(reply)
            calls.conversation.ask("go on")
        controls = [asked.body["cache_control"] for asked in fake.journal]
    assert [control.get("ttl") for control in controls] == [None, None, "1h", "1h"]


async def test_every_reply_is_counted_with_its_price() -> None:
    async with (
        FakeModel([Turn([text("done")])], cache=PromptCache()) as fake,
        calls_of(fake, Clock()) as (calls, counted),
    ):
        for turn in (1, 2):
            calls.conversation.add(await calls.reply(turn))
            calls.conversation.ask("go on")
        assert counted[0] + counted[1] == calls.run.meter.usage
    assert counted[0].cache_write_tokens > 1000
    assert counted[1].cache_read_tokens > 1000
    assert (counted[1].cache_saved_usd or 0) > 0
