"""Between two attempts and beside a run's end: an accepted answer has an event and its effect, else it is refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import Status
from deputize.shared.errors import Conflict
from deputize.shared.events import PermissionAnswered, PermissionRequested
from deputize.shared.message import Message, MessageMode
from deputize.shared.permission import PermissionRequest
from deputize.shared.runs import messages
from deputize.shared.runs.keys import PENDING, permissions_key
from deputize.shared.runs.permissions import pending
from deputize.worker.policy.rule_file import load_rules
from deputize.worker.task import carry_out
from tests.runs.asking import answered, begun, until_status
from tests.runs.bench import Bench, call, say, script
from tests.waiting import until

TWO = [call("write_file", path="a.txt", content="x\n"), call("write_file", path="b.txt", content="y\n")]
OUTCOMES = ["proceed_once", "proceed_always", "proceed_always_tool", "modify", "cancel"]


async def stopped(bench: Bench, id: str, run: asyncio.Task[Any]) -> None:
    """The worker is asked to stop, and hands the run over."""
    run.cancel()
    await asyncio.wait({run})


async def killed(bench: Bench, id: str, run: asyncio.Task[Any]) -> None:
    """What its worker writes from now on is too late."""
    if not (await bench.store.get(id)).status.finished:
        await bench.lose(id)
    run.cancel()
    await asyncio.wait({run})


async def give(bench: Bench, request: PermissionRequest, outcome: str) -> str | None:
    """Returns the outcome if the answer is accepted."""
    path = str(request.step.arguments["path"])
    changed = {"arguments": {"path": path, "content": "changed\n"}} if outcome == "modify" else {}
    try:
        await answered(bench, request, outcome, **changed)
    except Conflict:
        return None
    return outcome


async def waiting(bench: Bench) -> list[PermissionRequest]:
    return [kept.request for kept in await pending(bench.store.redis)]


async def answer_all(bench: Bench, run: asyncio.Task[Any], accepted: dict[str, str], outcome: str) -> None:
    """Answers whatever is asked until the run has ended."""
    while not run.done():
        for request in await waiting(bench):
            if given := await give(bench, request, outcome):
                accepted[request.permission_id] = given
        await asyncio.wait({run}, timeout=0.02)
    await run


async def reports(bench: Bench, id: str) -> Counter[str]:
    return Counter(event.permission_id for event in await bench.seen(id, PermissionAnswered))


@pytest.mark.parametrize("end", [stopped, killed])
@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_whenever_the_worker_goes_an_answer_in_the_gap_is_acted_upon_once(
    asking: Bench, tmp_path: Path, outcome: str, end: Callable[..., Awaitable[None]]
) -> None:
    moments = range(2, 12)
    for moment in moments:
        id, run = await begun(asking, script(tmp_path, TWO, [say("done")]), task=f"{moment}")

        async def so_far(id: str = id, moment: int = moment) -> bool:
            found = await asking.events(id)
            return len(found) >= moment or found[-1].event.type == "waiting"

        await until(so_far)
        await end(asking, id, run)
        accepted = dict[str, str]()
        for request in (await waiting(asking))[: moment % 3]:
            if await give(asking, request, outcome):  # else the answer before covers it
                accepted[request.permission_id] = outcome
        await answer_all(asking, asyncio.create_task(carry_out(asking.services, id)), accepted, outcome)
        result = await asking.result(id)
        asked = [event.permission_id for event in await asking.seen(id, PermissionRequested)]
        assert (result.termination_reason, len(asked), {*accepted} <= {*asked}) == ("completed", 2, True), moment
        assert await reports(asking, id) == Counter(asked), moment
        assert result.files_modified == ([] if outcome == "cancel" else ["a.txt", "b.txt"]), moment
        if outcome == "modify":
            assert (await asking.store.patch(id)).count("+changed") == 2
        assert await asking.store.redis.exists(PENDING) == 0


async def in_a_gap(bench: Bench, tmp_path: Path) -> tuple[str, list[PermissionRequest]]:
    """A delegation whose worker was stopped while it waited for two answers."""
    id, run = await begun(bench, script(tmp_path, TWO, [say("done")], summary="wrapped"))
    await until_status(bench, id, Status.WAITING)
    await stopped(bench, id, run)
    return id, await waiting(bench)


RULE = '[[rule]]\nname = "new"\nreason = "r"\ndecision = "{}"\ntool = "write_file"\n'


@pytest.mark.parametrize("outcome", ["proceed_once", "cancel", "modify"])
@pytest.mark.parametrize("changed", ["allows", "denies", "asks nobody", "other ids"])
async def test_an_answer_holds_for_a_worker_that_would_not_ask_the_same(
    asking: Bench, tmp_path: Path, outcome: str, changed: str
) -> None:
    """The worker that goes on has other rules, or is of another version. What it denies stays denied."""
    id, (first, _) = await in_a_gap(asking, tmp_path)
    accepted = {first.permission_id: outcome}
    if changed == "other ids":
        first = await renamed(asking, id, first)
        accepted = {first.permission_id: outcome}
    assert await give(asking, first, outcome) == outcome
    policy = tmp_path / "rules.toml"
    policy.write_text(RULE.format({"allows": "allow", "denies": "deny"}.get(changed, "ask")))
    nobody = {"permission_timeout_seconds": 0} if changed == "asks nobody" else {}
    settings = asking.settings.model_copy(update=nobody)
    services = replace(asking.services, rules=load_rules([policy]), settings=settings)
    await answer_all(asking, asyncio.create_task(carry_out(services, id)), accepted, "cancel")
    refused = outcome == "cancel" or changed == "denies"
    assert (await asking.result(id)).files_modified == ([] if refused else [first.step.arguments["path"]])
    assert await reports(asking, id) == Counter([*accepted])


async def renamed(bench: Bench, id: str, request: PermissionRequest) -> PermissionRequest:
    """Gives a request the id that another version would have given to it."""
    redis, key, other = bench.store.redis, permissions_key(id), request.permission_id[:-8] + "0badc0de"
    for name, value in (await redis.hgetall(key)).items():
        if name.startswith(request.permission_id):
            await redis.hdel(key, name)
            changed = name.replace(request.permission_id, other), value.replace(request.permission_id, other)
            await redis.hset(key, *changed)
    await redis.hdel(PENDING, request.permission_id)
    await redis.hset(PENDING, other, id)
    return request.model_copy(update={"permission_id": other})


async def send(bench: Bench, id: str, mode: MessageMode) -> None:
    await messages.send(bench.store.redis, id, Message.new("go on", mode, "ada"), 60)


@pytest.mark.parametrize("what", ["cancel", "wrap up", "worker lost"])
async def test_an_answer_before_the_end_in_the_gap_has_an_event_and_one_after_it_is_refused(
    asking: Bench, tmp_path: Path, what: str
) -> None:
    id, (first, second) = await in_a_gap(asking, tmp_path)
    assert await give(asking, first, "proceed_once")
    if what == "cancel":
        await asking.store.cancel(id)
    elif what == "wrap up":
        await send(asking, id, MessageMode.WRAP_UP)
    else:
        for _ in range(3):
            await asking.services.claim(id)
            await asking.lose(id)
    await carry_out(asking.services, id)
    result = await asking.result(id)
    assert result.termination_reason == {"cancel": "cancelled", "wrap up": "wrapped_up"}.get(what, "worker_lost")
    assert await reports(asking, id) == Counter([first.permission_id])
    assert await give(asking, second, "proceed_once") is None
    assert result.files_modified == []


async def test_a_message_in_the_gap_leaves_the_question_open(asking: Bench, tmp_path: Path) -> None:
    id, both = await in_a_gap(asking, tmp_path)
    await send(asking, id, MessageMode.STEER)
    accepted = {request.permission_id: "proceed_once" for request in both}
    assert [await give(asking, request, "proceed_once") for request in both] == ["proceed_once"] * 2
    await carry_out(asking.services, id)
    assert (await asking.result(id)).files_modified == ["a.txt", "b.txt"]
    assert await reports(asking, id) == Counter([*accepted])


async def test_while_the_last_turn_is_written_no_answer_is_accepted(asking: Bench, tmp_path: Path) -> None:
    slow = [{"blocks": TWO}, {"blocks": [say("never")]}]
    id, run = await begun(asking, script(tmp_path, *slow, summary="wrapped"))
    await until_status(asking, id, Status.WAITING)
    first, second = await waiting(asking)
    await send(asking, id, MessageMode.WRAP_UP)
    accepted = dict[str, str]()

    async def refused() -> bool:
        if given := await give(asking, first, "proceed_once"):
            accepted[first.permission_id] = given
        return await asking.store.redis.hexists(PENDING, second.permission_id) == 0

    await until(refused)
    await run
    assert await reports(asking, id) == Counter([*accepted])
