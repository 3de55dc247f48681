"""Messages through crashes: killed between any two writes, a run reads each one once and reports it once, in order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.events import MessageRead, MessageReceived, WrapUpRequested
from deputize.shared.message import Message, MessageMode
from deputize.shared.request import DelegationRequest, Limits
from deputize.shared.runs.messages import messages_of
from deputize.shared.runs.store import RunStore
from deputize.worker.tools import BUILTIN
from deputize.worker.tools.base import Kind, Params, Tool, ToolContext, ToolResult
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.runs.cut import carry_out_cut
from tests.runs.held import post
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
        sent = await messages_of(posting.store.redis, id)
        assert len({message.text for message in sent}) == len(sent) >= 2, writes
        read = [event.message_id for event in await posting.seen(id, MessageRead)]
        assert read + [message.message_id for message in result.undelivered] == ids(sent), writes
        received = await posting.seen(id, MessageReceived, WrapUpRequested)
        assert [event.message_id for event in received] == ids(sent), writes
        history = await history_of(posting, result)
        quotes = [text for text in texts_of(history) if "<caller_message>" in text]
        assert len(quotes) == len(read), writes
        assert all(f"\n{message.text}\n" in quote for message, quote in zip(sent, quotes, strict=False)), writes
        assert not history or answered_once(history), writes
        seqs = [envelope.seq for envelope in await posting.events(id)]
        assert seqs == [*range(1, len(seqs) + 1)], writes
        if not was_cut:
            break
    assert writes > len(turns)


def ids(sent: list[Message]) -> list[str]:
    return [message.message_id for message in sent]


def texts_of(history: list[dict[str, Any]]) -> list[str]:
    blocks = [block for entry in history if entry["role"] == "user" for block in entry["content"]]
    return [block["text"] for block in blocks if block["type"] == "text"]
