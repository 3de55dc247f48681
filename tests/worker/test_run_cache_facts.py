"""A run's facts about the prompt cache: what each reply read, wrote and saved, and why it missed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deputize.shared.delegation import Usage
from deputize.shared.events import Replied
from deputize.worker.models import close_models
from tests.fake_model import FakeModel, PromptCache, Turn, call, text
from tests.fake_model.cache import Bill
from tests.running import Bench, open_bench

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
