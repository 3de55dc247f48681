"""Delegations over one context, at an endpoint with the provider's prompt cache: they pay for it once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import Usage
from deputize.shared.events import Replied, ResumedWaiting, Waiting
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.worker.models import close_models
from deputize.worker.task import carry_out
from tests.fake_model import FakeModel, PromptCache, Turn, call, refuse, text
from tests.fake_model.cache import Bill
from tests.runs.bench import Bench, bench_at, open_bench
from tests.waiting import until

CONTEXT = "A sentence of the context that all of them get. " * 1500
"""About 18,000 tokens, as the endpoint counts them."""
DONE = [Turn([text("done")])]


def first_turn(events: list[Any]) -> Usage:
    return next(each.event.usage for each in events if isinstance(each.event, Replied))


async def siblings(bench: Bench, count: int, context: str = CONTEXT, **more: Any) -> list[str]:
    return [await bench.accept(DelegationRequest(task=f"task {n}", context=context, **more)) for n in range(count)]


async def finished(bench: Bench, ids: list[str]) -> list[list[Any]]:
    await asyncio.gather(*(carry_out(bench.services, id) for id in ids))
    assert {(await bench.result(id)).termination_reason for id in ids} == {"completed"}
    return [await bench.events(id) for id in ids]


async def test_siblings_that_start_together_write_their_context_once(redis_url: str, tmp_path: Path) -> None:
    async with FakeModel(DONE, cache=PromptCache(), delay=0.3) as model, bench_at(model, redis_url, tmp_path) as bench:
        events = await finished(bench, await siblings(bench, 8))
    usages = sorted((first_turn(each) for each in events), key=lambda usage: -usage.cache_write_tokens)
    writer, *others = usages
    prefix = others[0].cache_read_tokens
    assert prefix > 18_000
    assert prefix <= writer.cache_write_tokens < prefix * 1.02
    assert {usage.cache_read_tokens for usage in others} == {prefix}
    assert all(usage.cached_share is not None and usage.cached_share > 0.95 for usage in others)
    why = [each.event.why for events in events for each in events if isinstance(each.event, Waiting)]
    assert why == ["shared_prefix"] * 7


async def test_siblings_share_the_instructions_of_their_project(redis_url: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "AGENTS.md").write_text("A rule of this project. " * 1200)
    async with (
        FakeModel(DONE, cache=PromptCache(), delay=0.3) as model,
        bench_at(model, redis_url, tmp_path / "home") as bench,
    ):
        events = await finished(bench, await siblings(bench, 10, "", workspace=str(project)))
    writer, *others = sorted((first_turn(each) for each in events), key=lambda usage: -usage.cache_write_tokens)
    prefix = others[0].cache_read_tokens
    assert prefix > 5_000
    assert prefix <= writer.cache_write_tokens < prefix * 1.02
    assert {usage.cache_read_tokens for usage in others} == {prefix}


async def test_a_worker_counts_what_its_model_calls_used(redis_url: str, tmp_path: Path) -> None:
    async with FakeModel(DONE, cache=PromptCache()) as model, bench_at(model, redis_url, tmp_path) as bench:
        events = [(await finished(bench, [id]))[0] for id in await siblings(bench, 2)]
        assert bench.services.status.usage == first_turn(events[0]) + first_turn(events[1])
        assert bench.services.status.card().usage == bench.services.status.usage
        assert (bench.services.status.usage.cache_saved_usd or 0) > 0


async def test_delegations_that_come_later_read_it_without_waiting(redis_url: str, tmp_path: Path) -> None:
    async with FakeModel(DONE, cache=PromptCache()) as model, bench_at(model, redis_url, tmp_path) as bench:
        first, second = [(await finished(bench, [id]))[0] for id in await siblings(bench, 2)]
    assert not [each for each in (*first, *second) if isinstance(each.event, Waiting)]
    assert (first_turn(second).cached_share or 0) > 0.95


async def test_waiting_takes_no_slot_and_none_of_the_runs_time(redis_url: str, tmp_path: Path) -> None:
    free = 0

    @contextmanager
    def counted() -> Generator[None]:
        nonlocal free
        free += 1
        yield
        free -= 1

    slow = [Turn([text("done")], delay=4)]
    async with FakeModel(DONE, cache=PromptCache()) as model, bench_at(model, redis_url, tmp_path) as bench:
        bench.services.waiting = counted
        model.script("task 0", slow)
        writer, other = await siblings(bench, 2, limits=Limits(timeout_seconds=60))
        hurried = await bench.accept(
            DelegationRequest(task="task 2", context=CONTEXT, limits=Limits(timeout_seconds=3.5))
        )
        running = [asyncio.create_task(carry_out(bench.services, writer))]
        await until(lambda: len(model.journal) == 1)
        running += [asyncio.create_task(carry_out(bench.services, id)) for id in (other, hurried)]
        await until(lambda: free == 2)
        await asyncio.gather(*(until(partial(_waits, bench, id)) for id in (other, hurried)))
        await asyncio.gather(*running)
        assert free == 0
        result = await bench.result(hurried)
        assert (result.termination_reason, result.execution_time_ms < 3500) == ("completed", True)
        seconds = [each.event.seconds for each in await bench.events(hurried) if isinstance(each.event, ResumedWaiting)]
        assert seconds[0] > 1


@pytest.mark.parametrize(
    "slow",
    [Turn([text("done")], pace=10), Turn([text("done")], delay=4, faults=[refuse(529)])],
    ids=["it replies for a minute", "it is refused after 4 seconds, and replies after 4 more"],
)
async def test_the_others_wait_only_until_a_reply_begins_or_the_writer_fails(
    redis_url: str, tmp_path: Path, slow: Turn
) -> None:
    async with FakeModel(DONE, cache=PromptCache(), delay=0.5) as model, bench_at(model, redis_url, tmp_path) as bench:
        model.script("task 0", [slow])
        writer, *others = await siblings(bench, 3)
        running = asyncio.create_task(carry_out(bench.services, writer))
        await until(lambda: len(model.journal) == 1)
        events = await finished(bench, others)
        waits = [each.event for each in [*events[0], *events[1]] if isinstance(each.event, ResumedWaiting)]
        assert len(waits) == 2
        assert max(wait.seconds for wait in waits) < 8
        await bench.store.cancel(writer)
        await running


@pytest.mark.parametrize("ending", ["cancelled", "timeout"])
async def test_a_run_that_waits_can_be_cancelled_and_its_clock_goes_on_afterwards(
    redis_url: str, tmp_path: Path, ending: str
) -> None:
    async with FakeModel(DONE, cache=PromptCache()) as model, bench_at(model, redis_url, tmp_path) as bench:
        model.script("task 0", [Turn([text("done")], delay=1.5)])
        model.script("task 1", [Turn([text("never")], delay=1000)])
        writer, other = await siblings(bench, 2, limits=Limits(timeout_seconds=2))
        running = [asyncio.create_task(carry_out(bench.services, writer))]
        await until(lambda: len(model.journal) == 1)
        running.append(asyncio.create_task(carry_out(bench.services, other)))
        if ending == "cancelled":
            await until(partial(_waits, bench, other))
            await bench.store.cancel(other)
        await asyncio.gather(*running)
        assert (await bench.result(other)).termination_reason == ending


async def _waits(bench: Bench, id: str) -> bool:
    return (await bench.store.get(id)).status == "waiting"


async def test_a_delegation_of_many_turns_reads_most_of_its_input(redis_url: str, tmp_path: Path) -> None:
    turns = [Turn([call("glob", pattern=f"*{number}.py")]) for number in range(19)]
    async with FakeModel([*turns, *DONE], cache=PromptCache()) as model, bench_at(model, redis_url, tmp_path) as bench:
        (id,) = await siblings(bench, 1)
        await finished(bench, [id])
        result = await bench.result(id)
    assert result.turn_count == 20
    assert result.usage.cached_share is not None
    assert result.usage.cached_share > 0.9
    assert result.usage.cache_saved_usd is not None
    assert result.usage.cache_saved_usd > 0


@pytest.mark.costly
async def test_a_turn_of_many_calls_does_not_lose_the_cache(redis_url: str, tmp_path: Path) -> None:
    many = [Turn([call("glob", pattern=f"*{turn}-{number}.py") for number in range(25)]) for turn in range(2)]
    async with (
        FakeModel([*many, *DONE], cache=PromptCache()) as model,
        bench_at(model, redis_url, tmp_path) as bench,
    ):
        (id,) = await siblings(bench, 1)
        (events,) = await finished(bench, [id])
    first, second, third = (each.event.usage for each in events if isinstance(each.event, Replied))
    assert second.cache_read_tokens >= first.cache_read_tokens + first.cache_write_tokens
    assert third.cache_read_tokens >= second.cache_read_tokens + second.cache_write_tokens


# A run's facts about the prompt cache: what each reply read, wrote and saved, and why it missed.


READ = call("read_file", path="a.txt")


@pytest.fixture
async def fake() -> AsyncIterator[FakeModel]:
    async with FakeModel(cache=PromptCache()) as server:
        yield server
        await close_models()


@pytest.fixture
async def talking(redis_url: str, tmp_path: Path, fake: FakeModel) -> AsyncIterator[Bench]:
    own = fake.variables
    settings = {"model_endpoint": own, "model": "claude-sonnet-5-5", "cache_diagnostics": True}
    async with open_bench(redis_url, tmp_path / "home", **settings) as bench:
        yield bench


def named(fake: FakeModel) -> list[int | None]:
    """Of each request, which one's reply it names as the one before."""
    ids = [asked.body["diagnostics"]["previous_message_id"] for asked in fake.journal]
    return [id and int(id.removeprefix("msg_fake_")) for id in ids]


async def replies(bench: Bench, id: str) -> list[Replied]:
    return [envelope.event for envelope in await bench.events(id) if isinstance(envelope.event, Replied)]


@pytest.mark.parametrize("style", ["native", "xml"])
async def test_the_usage_of_a_run_is_that_of_its_replies(talking: Bench, fake: FakeModel, style: str) -> None:
    fake.script("", [Turn([READ]), Turn([call("read_file", path="b.txt")]), Turn([text("Done.")])])
    result = await talking.run(tool_call_style=style)
    assert (result.summary, named(fake)) == ("Done.", [None, 1, 2])
    seen = await replies(talking, result.delegation_id)
    assert sum((each.usage for each in seen), Usage()) == result.usage
    assert [each.usage.cache_read_tokens > 0 for each in seen] == [False, True, True]
    assert [each.cache_miss for each in seen] == [None, None, None]
    assert (result.usage.cached_share or 0) > 0.5
    assert (result.usage.cache_saved_usd or 0) > 0
    assert result.usage.cache_read_tokens == sum(asked.usage["cache_read_input_tokens"] for asked in fake.journal)


async def test_a_conversation_that_begins_anew_names_no_reply_before(talking: Bench, fake: FakeModel) -> None:
    full = Turn([text("much")], stop="model_context_window_exceeded")
    fake.script("", [Turn([READ]), full, Turn([text("NOTES")])])
    fake.script("Work so far", [Turn([READ]), Turn([text("Done.")])])
    result = await talking.run()
    assert (result.summary, named(fake)) == ("Done.", [None, 1, 2, None, 4])


async def test_what_the_endpoint_missed_is_in_the_event(talking: Bench, fake: FakeModel) -> None:
    fake.cache = ForgetfulCache()
    fake.script("", [Turn([READ]), Turn([text("Done.")])])
    result = await talking.run()
    missed = [each.cache_miss for each in await replies(talking, result.delegation_id)]
    assert missed == [None, "previous_message_not_found"]


class ForgetfulCache(PromptCache):
    """Does not know any earlier request."""

    def begin(self, bill: Bill, reply: str) -> None:
        super().begin(bill, "msg_of_another_run")
