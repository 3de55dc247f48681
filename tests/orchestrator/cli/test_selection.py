"""`cancel`, `watch`, `wrap-up`, `resume` and `list` by label and session, and what the shell completes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.operations import PageOf
from deputize.shared.delegation import Status
from deputize.shared.request import DelegationRequest
from tests.orchestrator.cli.asked import FIRST, asked
from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.serving import served
from tests.waiting import until

GIVEN: list[dict[str, Any]] = [
    {"labels": {"job": "a"}, "session_id": "s"},
    {"labels": {"job": "a", "of": "b"}},
    {"session_id": "s"},
    {},
]


@pytest.fixture
async def ids(service: FakeService) -> list[str]:
    requests = (DelegationRequest(task=f"task {number}", **given) for number, given in enumerate(GIVEN))
    return [(await service.create(each)).delegation.id for each in requests]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--label", "job:a"], {0, 1}),
        (["--session", "s"], {0, 2}),
        (["--label", "job:a", "--session", "s"], {0}),
        (["--label", "job:a", "--label", "of:b"], {1}),
        (["--label", "job:z"], set[int]()),
        (["--all"], {0, 1, 2, 3}),
    ],
)
async def test_cancel_stops_those_that_are_chosen_and_no_others(
    url: str, service: FakeService, ids: list[str], options: list[str], wanted: set[int]
) -> None:
    done = await deputize("cancel", *options, DEPUTIZE_URL=url)
    assert done.code == 0
    assert {ids.index(line.split()[0]) for line in done.out.splitlines()} == wanted
    assert {number for number, id in enumerate(ids) if service.runs[id].status == "cancelled"} == wanted
    assert done.err == ("" if wanted else "nothing is unfinished with --label job:z\n")


class GrowingService(FakeService):
    """Accepts another delegation of the batch after each page of a list, a number of times, and lets one begin."""

    more = 3

    async def list(self, *, status: Status | None = None, **filters: Any) -> PageOf:
        page = await super().list(status=status, **filters)
        if self.more:
            self.more -= 1
            begun = (await self.create(DelegationRequest(task="begun", labels={"job": "a"}))).delegation
            await self.create(DelegationRequest(task="another", labels={"job": "a"}))
            self.begin(begun.id)
        return page


@pytest.mark.parametrize("more", [1, 2, 3, 4])
async def test_cancel_finds_what_is_accepted_and_begins_between_two_lists(more: int) -> None:
    service = GrowingService()
    service.more = more
    await service.create(DelegationRequest(task="first", labels={"job": "a"}))
    async with served(service) as url:
        done = await deputize("cancel", "--label", "job:a", DEPUTIZE_URL=url)
    assert (done.code, len(done.out.splitlines())) == (0, 1 + 2 * more)
    assert {run.status for run in service.runs.values()} == {"cancelled"}


@pytest.mark.parametrize(
    "given",
    [
        ["cancel"],
        ["cancel", "dlg_x", "--label", "job:a"],
        ["cancel", "--all", "--session", "s"],
        ["watch", "dlg_x", "--session", "s"],
        ["wrap-up"],
        ["wrap-up", "dlg_x", "stop", "--label", "job:a"],
        ["resume", "--all", "--label", "job:a"],
        ["resume", "dlg_x", "--all"],
        ["resume", "dlg_x", "--label", "job:a"],
    ],
)
async def test_delegations_are_named_in_one_way(url: str, service: FakeService, given: list[str]) -> None:
    done = await deputize(*given, DEPUTIZE_URL=url)
    assert (done.code, "--label" in done.err) == (2, True)
    assert service.runs == {}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [([], {0, 1}), (["--all"], {0, 1}), (["--label", "of:b"], {1}), (["--session", "s"], {0})],
)
async def test_resume_goes_on_with_all_that_is_paused_unless_some_are_chosen(
    url: str, service: FakeService, ids: list[str], options: list[str], wanted: set[int]
) -> None:
    for id in ids[:2]:
        service.runs[id] = service.runs[id].model_copy(update={"paused": True})
    done = await deputize("resume", *options, "--wait", "0", DEPUTIZE_URL=url)
    assert done.code == 124, done.err
    assert {number for number in (0, 1) if not service.runs[ids[number]].paused} == wanted


async def test_a_report_is_asked_of_all_that_are_chosen(url: str, service: FakeService, ids: list[str]) -> None:
    for id in ids:
        service.begin(id)
    done = await deputize("wrap-up", "--label", "job:a", "what is there", DEPUTIZE_URL=url)
    assert (done.code, len(done.out.split())) == (0, 2)
    read = {ids.index(id): [each.text for each in sent] for id, sent in service.inboxes.items() if sent}
    assert read == {0: ["what is there"], 1: ["what is there"]}


async def test_watching_by_label_ends_with_the_last_of_them(url: str, service: FakeService, ids: list[str]) -> None:
    async with started("watch", "--label", "job:a", DEPUTIZE_URL=url) as command:
        await until(lambda: service.following == 2, 60)
        for id in ids[:2]:
            service.finish(id, summary=f"did {ids.index(id)}")
        done = await command.done()
    assert (done.code, {*done.out.split("\n")} >= {"did 0", "did 1"}) == (0, True)
    nothing = await deputize("watch", "--label", "job:a", DEPUTIZE_URL=url)
    assert (nothing.code, nothing.err) == (0, "nothing is unfinished with --label job:a\n")


async def test_a_batch_is_stopped_by_the_label_that_it_printed(url: str, service: FakeService, ids: list[str]) -> None:
    done = await deputize("batch", "-", "--format", "text", "--wait", "0", stdin="one\ntwo\n", DEPUTIZE_URL=url)
    (options,) = re.findall(r"`deputize cancel (--label batch:b\w+)` stops it", done.err)
    await deputize("cancel", *options.split(), DEPUTIZE_URL=url)
    cancelled = {each.request.task for each in service.runs.values() if each.status == "cancelled"}
    assert cancelled == {"one", "two"}


async def test_a_batch_that_goes_on_keeps_its_id_and_a_label_of_the_request_its_value(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    tmp_path.joinpath("t.jsonl").write_text('{"task": "one"}\n{"task": "two", "labels": {"batch": "mine"}}\n')
    for more in ([], ["--resume"]):
        await deputize("batch", "t.jsonl", "--out", "o", "--wait", "0", *more, cwd=tmp_path, DEPUTIZE_URL=url)
    one, two = [each.request.labels["batch"] for each in service.runs.values()]
    assert (re.fullmatch(r"b\w{12}", one) is not None, two) == (True, "mine")
    state = tmp_path / "o.batch"
    state.write_text(state.read_text().replace(one, "batch-0011223344556677"))
    service.runs.clear()
    await deputize("batch", "t.jsonl", "--out", "o", "--wait", "0", "--resume", cwd=tmp_path, DEPUTIZE_URL=url)
    assert [each.request.labels for each in service.runs.values()] == [{}, {"batch": "mine"}], "one of before the label"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (["show", "dlg_"], "ids"),
        (["cancel", "dlg_x"], set[str]()),
        (["merge", "@"], {"@last"}),
        (["approve", "prm_"], "permissions"),
        (["deny", "@"], {"@last"}),
        (["drain", "w"], {"w1"}),
        (["cancel", "--label", "j"], {"job:a"}),
        (["run", "x", "--label", ""], {"job:a", "of:b"}),
        (["list", "--session", ""], {"s"}),
        (["run", "x", "--model", "h"], {"house"}),
        (["run", "x", "--agent", ""], {"reviewer"}),
        (["list", "--parent", "dlg_"], "ids"),
    ],
)
async def test_the_shell_completes_what_the_service_and_the_settings_know(
    url: str, service: FakeService, ids: list[str], tmp_path: Path, line: list[str], found: object
) -> None:
    service.fleet = [worker_card().model_copy(update={"name": "w1"})]
    permission = asked(FIRST, ids[0])
    service.ask(ids[0], permission)
    (tmp_path / "d.toml").write_text(
        '[models.house]\nbase_url = "http://127.0.0.1:1"\nmodel = "m"\n[agents.reviewer]\nsystem_prompt = "x"\n'
    )
    known = {"ids": {*ids}, "permissions": {permission.permission_id}}
    assert await completed(line, DEPUTIZE_URL=url, DEPUTIZE_CONFIG=str(tmp_path / "d.toml")) == (
        known[found] if isinstance(found, str) else found
    )


async def completed(line: list[str], **variables: Any) -> set[str]:
    words = {"COMP_WORDS": " ".join(["deputize", *line]), "COMP_CWORD": str(len(line))}
    done = await deputize(_DEPUTIZE_COMPLETE="bash_complete", **words, **variables)
    assert done.err == ""
    return {each.partition(",")[2] for each in done.out.split()}


@pytest.mark.parametrize("why", ["nothing runs", "a dead address", "wrong settings"])
async def test_a_completion_is_silent_where_nothing_answers_and_starts_nothing(tmp_path: Path, why: str) -> None:
    variables = {"DEPUTIZE_HOME": str(tmp_path / "home")}
    if why == "a dead address":
        variables["DEPUTIZE_URL"] = "http://127.0.0.1:1"
    elif why == "wrong settings":
        variables["DEPUTIZE_CONCURRENCY"] = "many"
    for line in (["show", ""], ["run", "x", "--model", "zz"]):
        assert await completed(line, **variables) == set()
    assert not (tmp_path / "home" / "stack.json").exists()


async def test_what_the_shell_reads_is_one_line_each_and_acts_on_no_terminal(url: str, service: FakeService) -> None:
    await service.create(DelegationRequest(task="red \x1b[31m", labels={"x": "y\nplain\nz"}))
    shown = [
        (await deputize(_DEPUTIZE_COMPLETE="zsh_complete", DEPUTIZE_URL=url, COMP_WORDS=line, COMP_CWORD=at)).out
        for line, at in (("deputize show", "2"), ("deputize list --label", "3"))
    ]
    assert ("\x1b" in shown[0], "red" in shown[0], shown[1].strip()) == (False, True, "")
