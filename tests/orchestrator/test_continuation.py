"""Going on with a finished delegation, and doing it again: by the service, a real worker and a strict endpoint."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import Conflict, Invalid, KeyReused, NotFound
from deputize.shared.ids import new_id
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import pause_unfinished
from deputize.worker.task import carry_out
from tests.fake_model import Turn, call, refuse, stall, text, thinking
from tests.orchestrator.whole import Whole, writes
from tests.waiting import until


async def test_a_continued_delegation_has_the_whole_conversation_with_files_and_changes(whole: Whole) -> None:
    notes = call("create_artifact", name="notes.md", content="kept")
    first = await whole.first(
        Turn([thinking("first"), writes("a.txt"), notes]),
        Turn([text("A is done.")]),
        Turn([thinking("second"), writes("b.txt")]),
        Turn([text("B, too.")]),
        tools=["write_file", "create_artifact"],
    )
    assert (first.success, [artifact.name for artifact in first.artifacts]) == (True, ["notes.md"]), first.details
    new = (await whole.service.continue_(first.delegation_id, "now also b", Limits(max_turns=7))).delegation
    assert (new.request.continues, new.request.task, new.effective_limits.max_turns) == (
        first.delegation_id,
        "now also b",
        7,
    )
    result = await whole.finished(new)
    assert (result.summary, result.turn_count) == ("B, too.", 2)
    assert result.files_modified == ["a.txt", "b.txt"]
    patch = await whole.service.patch(new.id)
    assert ("+this is a.txt" in patch, "+this is b.txt" in patch) == (True, True)
    assert [artifact.name for artifact in result.artifacts] == ["notes.md"]
    said = json.dumps(whole.sent())
    assert [said.index(words) for words in ("the first task", "A is done.", "now also b")] == sorted(
        said.index(words) for words in ("the first task", "A is done.", "now also b")
    )
    assert (await whole.service.get(first.delegation_id)).result == first


@pytest.mark.parametrize(
    ("pointer", "changed"),
    [
        ("/idempotencyKey", {"idempotency_key": ""}),
        ("/fromTurn", {"from_turn": 0}),
        ("/labels", {"labels": {str(number): "" for number in range(101)}}),
    ],
)
async def test_a_copy_of_a_request_that_could_not_be_read_is_refused(
    whole: Whole, pointer: str, changed: dict[str, Any]
) -> None:
    copied = DelegationRequest(task="one").model_copy(update=changed)
    with pytest.raises(Invalid) as refused:
        await whole.service.create(copied)
    assert [each["pointer"] for each in refused.value.errors] == [pointer]
    assert (await whole.service.list()).items == []


async def test_a_continued_one_can_be_continued(whole: Whole) -> None:
    first = await whole.first(Turn([text("one")]), Turn([writes("b.txt")]), Turn([text("two")]), Turn([text("three")]))
    second = await whole.finished(await whole.continued(first.delegation_id, "two"))
    third = await whole.finished(await whole.continued(second.delegation_id, "three"))
    assert (third.summary, third.files_modified) == ("three", ["b.txt"])


async def test_a_continuation_goes_on_with_the_files_of_its_directory_and_counts_from_its_start(
    whole: Whole, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("old\n")
    first = await whole.first(
        Turn([writes("a.txt")]),
        Turn([text("one")]),
        Turn([call("write_file", path="a.txt", content="this is both\n")]),
        Turn([text("two")]),
        workspace={"kind": "directory", "path": str(folder)},
    )
    (folder / "a.txt").write_text("changed since\n")
    second = await whole.finished(await whole.continued(first.delegation_id, "two"))
    assert second.success, second.errors
    patch = await whole.service.patch(second.delegation_id)
    assert ("-old" in patch, "+this is both" in patch) == (True, True)


async def test_one_that_failed_between_a_call_and_its_reply_goes_on_there(whole: Whole) -> None:
    first = await whole.first(Turn([writes("a.txt")]), Turn([text("done after all")], faults=[refuse(401)]))
    assert first.termination_reason == "model_unavailable"
    result = await whole.finished(await whole.continued(first.delegation_id, "the key is right now"))
    assert (result.success, result.summary) == (True, "done after all")


async def test_a_call_that_was_left_open_is_answered(whole: Whole) -> None:
    """A worker that was lost for good leaves a conversation that ends in the middle of a turn."""
    first = await whole.first(Turn([writes("a.txt")]), Turn([text("one")]))
    key = f"deputize:run:{{{first.delegation_id}}}:history"
    await whole.bench.store.redis.ltrim(key, 0, 1)
    result = await whole.finished(await whole.continued(first.delegation_id, "go on"))
    assert result.success
    answer = whole.sent()[-1]["content"]
    assert [block["type"] for block in answer] == ["tool_result", "text"]
    assert "not executed" in json.dumps(answer[0])


async def test_its_next_attempt_goes_on_with_its_own_conversation(whole: Whole) -> None:
    first = await whole.first(Turn([text("one")]), Turn([text("two")], faults=[stall()]))
    new = await whole.continued(first.delegation_id, "go on")
    running = asyncio.create_task(carry_out(whole.bench.services, new.id))
    await until(lambda: len(whole.model.journal) == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    result = await whole.finished(new)
    assert (result.success, result.attempts, result.summary) == (True, 2, "two")
    assert json.dumps(whole.sent()).count("the first task") == 1
    assert json.dumps(whole.sent()).count("go on") == 1


async def test_what_cannot_be_continued_is_refused_with_what_to_do(whole: Whole) -> None:
    with pytest.raises(NotFound):
        await whole.service.continue_(new_id(), "x")
    queued = (await whole.service.create(DelegationRequest(task="waits"))).delegation
    for ask in (whole.service.continue_(queued.id, "x"), whole.service.retry(queued.id)):
        with pytest.raises(Conflict, match="is queued, so it cannot be"):
            await ask
    await whole.service.cancel(queued.id)
    with pytest.raises(Conflict, match=f"never began; `deputize retry {queued.id}`"):
        await whole.service.continue_(queued.id, "x")
    first = await whole.first(Turn([text("one")]))
    with pytest.raises(Invalid, match="blank"):
        await whole.service.continue_(first.delegation_id, "  ")
    other = DelegationRequest(task="x", model="another", continues=first.delegation_id)
    with pytest.raises(Invalid, match="/model"):
        await whole.service.create(other)


async def test_files_that_are_gone_are_reported_before_and_after_it_is_accepted(whole: Whole) -> None:
    first = await whole.first(Turn([text("one")]))
    late = await whole.continued(first.delegation_id, "x")
    shutil.rmtree(whole.bench.settings.workspaces / first.delegation_id)
    with pytest.raises(Conflict, match="DEPUTIZE_WORKSPACE_RETENTION_SECONDS"):
        await whole.service.continue_(first.delegation_id, "x")
    result = await whole.finished(late)
    assert result.termination_reason == "refused"
    assert "DEPUTIZE_WORKSPACE_RETENTION_SECONDS" in result.summary


async def test_the_same_key_returns_the_first_continuation_and_the_first_retry_again(whole: Whole) -> None:
    first = (await whole.first(Turn([text("one")]))).delegation_id
    new = await whole.service.continue_(first, "go on", idempotency_key="c")
    again = await whole.service.continue_(first, "go on", idempotency_key="c")
    assert (new.replayed, again.replayed, again.delegation.id) == (False, True, new.delegation.id)
    with pytest.raises(KeyReused):
        await whole.service.continue_(first, "something else", idempotency_key="c")
    retries = [await whole.service.retry(first, idempotency_key="r") for _ in range(2)]
    assert [each.replayed for each in retries] == [False, True]
    assert len({each.delegation.id for each in retries}) == 1


async def test_a_retry_does_the_same_again_from_the_start(whole: Whole, tmp_path: Path) -> None:
    turns = [Turn([writes("a.txt")]), Turn([text("one")])]
    first = await whole.first(*turns, labels={"team": "shop"}, idempotency_key="once")
    again = (await whole.service.retry(first.delegation_id)).delegation
    assert (again.request.retry_of, again.request.task, again.request.labels, again.request.idempotency_key) == (
        first.delegation_id,
        "the first task",
        {"team": "shop"},
        None,
    )
    result = await whole.finished(again)
    assert (result.summary, result.files_modified) == ("one", ["a.txt"])
    assert len(whole.sent()) == 3


async def test_a_wait_for_what_is_paused_ends_at_once(whole: Whole) -> None:
    id = (await whole.service.create(DelegationRequest(task="left"))).delegation.id
    await pause_unfinished(whole.bench.store.redis, new_id(), temporary=True)
    async with asyncio.timeout(30):
        found = await whole.service.get(id, wait=600)
    assert (found.status, found.paused) == ("queued", True)
