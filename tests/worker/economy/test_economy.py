"""Economy: turns that go through message batches, at half the price. Issue 40, point 5."""

from __future__ import annotations

from deputize.shared.events import Replied, ResumedWaiting, TurnStarted, Waiting
from tests.fake_model import FakeModel, Turn, call, text
from tests.runs.bench import Bench


async def test_a_runs_turns_go_through_batches_at_half_the_price(bench: Bench, fake: FakeModel) -> None:
    fake.script("", [Turn([call("glob", pattern="*")]), Turn([text("done")])])
    result = await bench.run("look", economy=True)
    assert (result.status, result.summary, result.turn_count) == ("succeeded", "done", 2)
    assert [len(batch.requests) for batch in fake.batches.all] == [1, 1]
    direct = await bench.run("look too")
    assert result.usage.batch_tokens == result.usage.total
    assert direct.usage.batch_tokens == 0
    assert (result.usage.cost_usd or 0) / (direct.usage.cost_usd or 0) < 0.55
    kinds = [type(each.event) for each in await bench.events(result)]
    begun = kinds.index(TurnStarted)
    assert kinds[begun : begun + 4] == [TurnStarted, Waiting, ResumedWaiting, Replied]
    assert {each.why for each in await bench.seen(result, Waiting)} == {"batch"}
