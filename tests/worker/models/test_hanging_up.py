"""Whoever stops reading a model's reply closes its stream, and the endpoint sees it."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from deputize.worker.models.base import Reply, Retrying
from deputize.worker.models.retry import RetryPolicy
from tests.fake_model import (
    FakeModel,
    Turn,
    refuse,
    stall,
    text,
)
from tests.waiting import until
from tests.worker.models.asking import MANY, model_of, parts_of, prompt_of, reply_of


@pytest.mark.requirement("P-15")
async def test_cancelling_the_reader_closes_the_stream_at_once(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], faults=[stall(after=6)])])
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in model_of(fake).reply(prompt_of("hello")):
            begun.set()

    reading = asyncio.create_task(read())
    await asyncio.wait_for(begun.wait(), 30)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await until(lambda: fake.aborted == 1)
    assert fake.open == 0


async def test_cancelling_before_the_answer_begins_closes_the_connection(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], delay=30)])
    reading = asyncio.create_task(parts_of(model_of(fake), "hello"))
    await until(lambda: fake.open == 1)
    reading.cancel()
    await until(lambda: fake.aborted == 1)
    assert reading.cancelled()


async def test_closing_the_iterator_closes_the_stream_at_once(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], faults=[stall(after=6)])])
    async with aclosing(model_of(fake).reply(prompt_of("hello"))) as stream:
        await anext(stream)
    await until(lambda: fake.aborted == 1)
    assert fake.open == 0


async def test_cancelling_while_waiting_for_the_next_try_asks_no_more(fake: FakeModel) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(529)])])
    waiting = asyncio.Event()

    async def read() -> None:
        async for part in model_of(fake, RetryPolicy(first_delay=60, longest_delay=60)).reply(prompt_of("hello")):
            assert isinstance(part, Retrying)
            waiting.set()
            await part.wait()

    reading = asyncio.create_task(read())
    await asyncio.wait_for(waiting.wait(), 30)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert len(fake.journal) == 1


async def test_after_a_cancelled_stream_the_next_one_works(fake: FakeModel) -> None:
    fake.script("stall", [Turn([text(MANY)], faults=[stall(after=6)])])
    model = model_of(fake)
    async with aclosing(model.reply(prompt_of("stall"))) as stream:
        await anext(stream)
    assert (await reply_of(model, "hello")).text == "Hello from the fake model."


async def test_a_script_can_travel_inside_the_prompt(fake: FakeModel) -> None:
    script = {"turns": [{"blocks": [text("told")], "faults": [{"kind": "refuse", "status": 529}]}]}
    parts = await parts_of(model_of(fake), f"Do it. FAKE: {json.dumps(script)} And well.")
    assert isinstance(parts[0], Retrying)
    assert isinstance(parts[-1], Reply)
    assert parts[-1].text == "told"
