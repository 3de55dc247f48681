"""The Python interface: it has every operation of the service in both forms, and each answers as the service does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import aclosing, closing
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest

from deputize import Conflict, Invalid, NotFound, Orchestrator, SyncOrchestrator, ToolAgentResult
from deputize.orchestrator.operations import Service
from deputize.shared.delegation import Step, StepStatus
from deputize.shared.events import StepCompleted
from deputize.shared.ids import new_id
from deputize.shared.patches.merge import Planned
from deputize.shared.wire import Wire, now
from deputize.worker.workspace.workspace import Workspace
from tests.contracts.service.desks import Desk, FakeDesk, accepted
from tests.orchestrator.fake_service import worker_card
from tests.orchestrator.serving import served, settings
from tests.waiting import until
from tests.worker.workspace.trees import directory

Call: TypeAlias = Callable[..., Any]
OWN = {"create": "start", "create_many": "gather"}
"""Operations that have another name in Python."""


def public(kind: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(kind, inspect.isroutine) if not name.startswith("_")}


def test_no_operation_is_missing_in_either_form() -> None:
    wanted = {OWN.get(name, name) for name in public(Service)}
    assert wanted - public(Orchestrator).keys() == set()
    assert public(SyncOrchestrator).keys() - public(Orchestrator).keys() == {"open", "close"}  # others use `async with`
    assert public(Orchestrator).keys() - public(SyncOrchestrator).keys() == set()


@pytest.mark.parametrize("name", public(Orchestrator))
def test_both_forms_take_the_same_arguments_and_are_described(name: str) -> None:
    one, other = [getattr(kind, name) for kind in (Orchestrator, SyncOrchestrator)]
    assert [*inspect.signature(one).parameters] == [*inspect.signature(other).parameters]
    assert inspect.getdoc(one)
    assert inspect.getdoc(other)


@pytest.fixture
async def using(desk: Desk, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """Settings with which an orchestrator uses the desk's service."""
    if not isinstance(desk, FakeDesk):
        yield settings(redis_url=request.getfixturevalue("redis_url"), home=tmp_path)
        return
    desk.fake.workspaces = tmp_path / "workspaces"
    async with served(desk.fake) as url:
        yield settings(url=url)


@pytest.fixture(params=["async", "blocking"])
async def call(request: pytest.FixtureRequest, using: Any) -> AsyncIterator[Call]:
    """Calls an operation by its name; of one that yields it returns the items, at most ``first`` of them."""
    if request.param == "async":
        async with Orchestrator(using) as orchestrator:

            async def call(name: str, /, *args: Any, first: int = 10, **fields: Any) -> Any:
                answer = getattr(orchestrator, name)(*args, **fields)
                if inspect.iscoroutine(answer):
                    return await answer
                async with aclosing(answer) as items:
                    return await taken(items, first)

            yield call
        return
    blocking = SyncOrchestrator(using)
    await asyncio.to_thread(blocking.__enter__)

    def ask(name: str, first: int, args: Any, fields: Any) -> Any:
        answer = getattr(blocking, name)(*args, **fields)
        if not isinstance(answer, Generator):
            return answer
        with closing(cast("Generator[Any]", answer)) as items:
            return [*islice(items, first)]

    yield lambda name, /, *args, first=10, **fields: asyncio.to_thread(ask, name, first, args, fields)
    await asyncio.to_thread(blocking.__exit__)


async def taken(items: AsyncIterator[Any], first: int) -> list[Any]:
    found: list[Any] = []
    async for item in items:
        found.append(item)
        if len(found) == first:
            break
    return found


def plain(answer: Any) -> Any:
    """What of an answer is the same over HTTP, too."""
    if isinstance(answer, list):
        return [plain(each) for each in answer]
    return answer.to_json() if isinstance(answer, Wire) else answer


ANSWERED = {
    "get": {},
    "events": {},
    "steps": {},
    "patch": {},
    "artifact": {"name": "a.md"},
    "files": {},
    "file": {"path": "new.txt"},
    "follow": {"after": 1},
    "cancel": {},
}
"""What is asked of one delegation, with its arguments."""


async def worked(desk: Desk, folder: Path, root: Path) -> str:
    """A finished delegation that changed a file of the folder and made another one."""
    folder.mkdir()
    (folder / "old.txt").write_text("one\ntwo\nthree\n")
    id = await accepted(desk.service)
    workspace = await Workspace.create(directory(folder), id, root)
    (workspace.path / "old.txt").write_text("one\n2\nthree\n")
    (workspace.path / "new.txt").write_text("new\n")
    facts = await workspace.facts()
    workspace.close()
    done = {"status": StepStatus.COMPLETED, "turn_index": 1, "timestamp": now()}
    await desk.happen(id, StepCompleted(step=Step(id="s", type="read", title="t", tool_name="read_file", **done)))
    await desk.finish(id, patch=facts.patch, artifacts={("a.md", 1): "kept"}, file_changes=list(facts.changes))
    return id


async def test_what_is_asked_of_a_delegation_is_answered_as_by_the_service(
    desk: Desk, call: Call, tmp_path: Path
) -> None:
    id = await worked(desk, tmp_path / "project", tmp_path / "workspaces")
    for name, fields in ANSWERED.items():
        answer = getattr(desk.service, name)(id, **fields)
        expected = await answer if inspect.iscoroutine(answer) else await taken(answer, 10)
        assert expected
        assert plain(await call(name, id, **fields)) == plain(expected), name
        with pytest.raises(NotFound, match="there is no delegation"):
            await call(name, new_id(), **fields)


HALF = "x\ud83d"
UNSENDABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "start": ("task", {"task": HALF}),
    "delegate": ("labels/a", {"task": "t", "labels": {"a": HALF}}),
    "gather": ("task", {"requests": ["t", HALF]}),
    "map": ("task", {"requests": [f"review {HALF}"]}),
    "evaluate": ("context", {"tasks": ["t"], "context": HALF}),
    "send": ("text", {"id": new_id(), "text": HALF}),
    "wrap_up": ("text", {"id": new_id(), "text": HALF}),
    "continue_": ("text", {"id": new_id(), "text": HALF}),
    "retry": ("idempotency_key", {"id": new_id(), "idempotency_key": HALF}),
    "list": ("labels/name", {"labels": {"name": HALF}}),
    "permissions": ("delegation", {"delegation": HALF}),
    "answer_permission": ("arguments/path", {"id": "prm_1", "outcome": "modify", "arguments": {"path": HALF}}),
    "artifact": ("name", {"id": new_id(), "name": HALF}),
    "deliver": ("branch", {"id": new_id(), "wanted": {"branch": HALF}}),
    "merge": ("ids/0", {"ids": [HALF]}),
    "get": ("id", {"id": HALF}),
    "result": ("id", {"id": HALF}),
    "follow": ("id", {"id": HALF}),
    "file": ("path", {"id": new_id(), "path": HALF}),
    "pause_schedule": ("name", {"name": HALF}),
    "cost": ("by", {"by": HALF}),
    "list_session": ("session", {"session": "b\udcff"}),
}


async def test_half_of_a_character_is_refused_by_every_operation_that_takes_text(call: Call) -> None:
    for name, (field, given) in UNSENDABLE.items():
        with pytest.raises(Invalid, match=rf"^{field}: there is half of a character, .*; write the whole") as caught:
            await call(name.removesuffix("_session"), **given)
        assert [each["pointer"] for each in caught.value.errors] == [f"/{field}"], name


ID, TEXT = new_id(), "text"
WRONG: list[tuple[str, str, dict[str, Any]]] = [
    *(("retry", "idempotency_key", {"id": ID, "idempotency_key": key}) for key in ("", 5, "k" * 300)),
    *(("retry", "from_turn", {"id": ID, "from_turn": turn}) for turn in (0, -1, 2.5, "x", True)),
    *(
        ("continue_", "idempotency_key", {"id": ID, "text": TEXT, "idempotency_key": key})
        for key in ("", 5, "k" * 3000)
    ),
    ("continue_", "text", {"id": ID, "text": 5}),
    ("continue_", "limits/max_turns", {"id": ID, "text": TEXT, "limits": {"max_turns": 0}}),
    ("list", "status", {"status": "runing"}),
    ("list", "cursor", {"cursor": "zzz"}),
    *(("list", "limit", {"limit": limit}) for limit in (0, -3, 10_000)),
    *(("list", "labels", {"labels": labels}) for labels in ("a=b", ["a:b"])),
    *(("events", "after", {"id": ID, "after": after}) for after in (-1, "abc", 1.5)),
    *(("follow", "after", {"id": ID, "after": after}) for after in (-1, 10**30)),
    *(("send", "text", {"id": ID, "text": text}) for text in (5, ["x"])),
    ("wrap_up", "text", {"id": ID, "text": 5}),
    ("deliver", "wanted", {"id": ID, "wanted": "main"}),
    ("try_webhook", "webhook", {"webhook": "http://example.com"}),
    ("cost", "since", {"since": "yesterday"}),
    ("prune", "older_than", {"older_than": "1d"}),
    ("prune", "keep_bytes", {"keep_bytes": -1}),
    ("answer_permission", "outcome", {"id": "prm_1", "outcome": None}),
    ("answer_permission", "reason", {"id": "prm_1", "outcome": "deny", "reason": 5}),
    ("answer_permission", "arguments", {"id": "prm_1", "outcome": "modify", "arguments": "x"}),
    *(("get", "wait", {"id": ID, "wait": wait}) for wait in ("a", float("nan"), -1)),
    ("artifact", "version", {"id": ID, "name": "a", "version": 0}),
    ("permissions", "delegation", {"delegation": "dlg"}),
    ("audit", "cursor", {"cursor": "zzz"}),
    ("file", "path", {"id": ID, "path": 5}),
]


async def test_a_wrong_argument_is_refused_with_its_name_before_anything_is_done(desk: Desk, call: Call) -> None:
    for name, field, given in WRONG:
        with pytest.raises(Invalid) as caught:
            await call(name, **given)
        assert [each["pointer"] for each in caught.value.errors] == [f"/{field}"], (name, given)


async def test_a_wrong_argument_leaves_no_record(desk: Desk, call: Call) -> None:
    id = await accepted(desk.service)
    await desk.finish(id)
    for name, field, given in WRONG:
        if name in ("retry", "continue_"):
            with pytest.raises(Invalid, match=field):
                await call(name, **given | {"id": id})
    assert [each.id for each in (await call("list")).items] == [id]


async def test_a_single_task_is_no_list_of_tasks(call: Call) -> None:
    for name, field in {"map": "requests", "gather": "requests", "evaluate": "tasks"}.items():
        for given in ("Hi", None, {"task": "Hi"}):
            with pytest.raises(Invalid, match=rf"^/{field}: is a list of {field}; put a single one into a list$"):
                await call(name, given)
    assert (await call("list")).items == []


async def test_an_output_that_is_no_type_is_refused_before_anything_runs(call: Call) -> None:
    for output in ({"type": "object"}, 5, "Size"):
        with pytest.raises(Invalid, match="goes to output_schema"):
            await call("delegate", "x", output=output)
    assert (await call("list")).items == []


async def test_arguments_that_exclude_each_other_are_refused(call: Call) -> None:
    with pytest.raises(Invalid, match="a list for a review has one page"):
        await call("list", cursor=ID, for_review=True)
    for text in ("", " "):
        with pytest.raises(Invalid, match="a message needs a text"):
            await call("send", ID, text)


async def test_arguments_have_the_forms_that_requests_have(desk: Desk, call: Call) -> None:
    id = await accepted(desk.service)
    assert [each.id for each in (await call("list", status="queued")).items] == [id]
    assert await call("events", id, after="0") != []


async def test_the_path_of_a_file_may_hold_bytes_that_are_no_text(call: Call) -> None:
    with pytest.raises(NotFound, match="there is no delegation"):
        await call("file", new_id(), path="b\udcff")


async def test_what_is_asked_of_all_is_answered_as_by_the_service(desk: Desk, call: Call) -> None:
    id = await accepted(desk.service, labels={"of": "all"})
    await accepted(desk.service)
    await desk.announce(worker_card(name="worker-1"))
    assert [each.id for each in (await call("list", labels={"of": "all"})).items] == [id]
    for name in ("list", "workers", "tools", "disk", "counts", "permissions", "webhooks"):
        assert plain(await call(name)) == plain(await getattr(desk.service, name)()), name
    assert (await call("cost", "label:of")).by == "label:of"
    with pytest.raises(Invalid, match="'hour' is not one of day, model, session, label"):
        await call("cost", "hour")
    assert await call("not_ready") is None
    await desk.finish(id)
    assert (await call("prune", 0)).removed == 1
    if not isinstance(desk, FakeDesk):
        assert (await call("audit")).items == []


async def test_who_follows_all_gets_what_happens_to_everyone(desk: Desk, call: Call) -> None:
    following = asyncio.create_task(call("follow_all", first=1))

    async def heard() -> bool:
        await accepted(desk.service)
        return following.done()

    await until(heard)
    assert [each.event.type for each in await following] == ["run_queued"]


async def test_results_come_in_the_order_in_which_the_delegations_end(desk: Desk, call: Call, tmp_path: Path) -> None:
    one, two, three = [await accepted(desk.service, task) for task in ("one", "two", "three")]

    async def ended(first: int) -> list[str]:
        results: list[ToolAgentResult] = await asyncio.wait_for(
            call("as_completed", [one, two, three, one], first=first), 30
        )
        return sorted(each.summary for each in results)

    await desk.finish(two, summary="did two")
    assert await ended(1) == ["did two"]
    waiting = asyncio.create_task(ended(2))
    await desk.finish(three, summary="did three")
    assert await waiting == ["did three", "did two"]
    await desk.finish(one, summary="did one")
    assert await ended(4) == ["did one", "did three", "did two"]
    assert await call("as_completed", []) == []
    unknown = new_id()
    with pytest.raises(NotFound) as refused:
        await call("as_completed", [await accepted(desk.service), unknown])
    assert refused.value.delegation_id == unknown


async def test_changes_are_applied_to_a_directory_and_taken_back(desk: Desk, call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    id = await worked(desk, folder, tmp_path / "workspaces")
    (folder / "old.txt").write_text("zero\none\ntwo\nthree\n")
    changes = [Planned("created", "new.txt"), Planned("modified", "old.txt", merged=True)]
    assert sorted(await call("apply", id, str(folder), check=True), key=lambda each: each.path) == changes
    assert not (folder / "new.txt").exists()
    assert sorted(await call("apply", id, folder), key=lambda each: each.path) == changes
    assert (folder / "old.txt").read_text() == "zero\none\n2\nthree\n"
    assert len(await call("apply", id, folder, reverse=True)) == 2
    assert [each.name for each in folder.iterdir()] == ["old.txt"]


async def test_where_other_work_would_be_lost_nothing_is_applied(desk: Desk, call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    id = await worked(desk, folder, tmp_path / "workspaces")
    (folder / "old.txt").write_text("one\nmine\nthree\n")
    with pytest.raises(Conflict, match=r"nothing was changed in .*project, because .*lost: old.txt: the same lines"):
        await call("apply", id, folder)
    assert [each.name for each in folder.iterdir()] == ["old.txt"]
    with pytest.raises(Invalid, match="nowhere is not a directory on this machine"):
        await call("apply", id, folder / "nowhere")
    with pytest.raises(Conflict, match="is not finished yet"):
        await call("apply", await accepted(desk.service), folder)
