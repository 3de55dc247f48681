"""Messages through crashes: killed between any two writes, a run reads each one once and reports it once, in order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.limits import Limits
from deputize.shared.message import MessageMode
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.messages import messages_of
from deputize.shared.runs.store import RunStore
from deputize.worker.tools.base import Kind, Params, Tool, ToolContext, ToolResult
from deputize.worker.tools.builtin import BUILTIN
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.runs.cut import carry_out_cut
from tests.runs.held import post
from tests.runs.receipts import check_receipts
from tests.runs.totals import check_totals
from tests.worker.run_history import answered_once, history_of


class PostParams(Params):
    text: str
    mode: MessageMode = MessageMode.STEER


class Post(Tool[PostParams]):
    """Sends a message to its own run, as its caller does; in another attempt it is not sent again."""

    name = "post"
    kind = Kind.READ
    params = PostParams
    store: RunStore

    async def run(self, ctx: ToolContext, params: PostParams) -> ToolResult:
        there = await messages_of(self.store.redis, ctx.delegation_id)
        if params.text not in [message.text for message in there]:
            await post(self.store, ctx.delegation_id, params.text, params.mode)
        return ToolResult("sent")


@pytest.fixture
async def posting(redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    tool = Post()
    async with open_bench(redis_url, tmp_path / "home", offered=(*BUILTIN, tool)) as bench:
        tool.store = bench.store
        yield bench


def posting_call(text: str, mode: str = "steer") -> dict[str, Any]:
    return call("post", text=text, mode=mode)


WORDS = say("I work.")
"""Words before a call are published, which divides the writes of its reply in two."""
RUNS: dict[str, tuple[list[Any], dict[str, int], str]] = {
    "one a turn": ([[WORDS, posting_call("one")], [posting_call("two")], [WORDS]], {}, "completed"),
    "two a turn": (
        [[posting_call("one"), posting_call("two")], [WORDS, call("glob", pattern="*")], [WORDS]],
        {},
        "completed",
    ),
    "a last turn": ([[posting_call("one")], [posting_call("two")]], {"max_turns": 2}, "max_turns"),
    "to wrap up": (
        [[posting_call("one")], [posting_call("two"), posting_call("end", "wrapUp"), WORDS], [WORDS]],
        {},
        "wrapped_up",
    ),
}


@pytest.mark.parametrize(("turns", "limits", "reason"), RUNS.values(), ids=RUNS)
@pytest.mark.costly
async def test_a_run_killed_between_any_two_writes_reads_each_message_once(
    posting: Bench, tmp_path: Path, turns: list[Any], limits: dict[str, int], reason: str
) -> None:
    model = script(tmp_path, *turns, summary="The report.")
    request = DelegationRequest(task="do it", model=model, tools=["*"], limits=Limits(**limits))
    writes = 0
    for writes in count(1):
        id, was_cut = await carry_out_cut(posting, request, writes)
        result = await posting.result(id)
        assert result.termination_reason == reason, writes
        texts = [message.text for message in await messages_of(posting.store.redis, id)]
        assert len({*texts}) == len(texts) >= 2, writes
        await check_receipts(posting.store, id)
        history = await history_of(posting, result)
        assert not history or answered_once(history), writes
        if not was_cut:
            break
    assert writes > len(turns)
    await check_totals(posting.store.redis)
