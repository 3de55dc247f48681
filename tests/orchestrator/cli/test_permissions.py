"""Permission requests: what the commands list and send, and questions that appear while a command watches."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deputize.orchestrator.cli import cli
from deputize.orchestrator.cli.live import Lines
from deputize.orchestrator.cli.permissions import UNATTENDED, Questions
from deputize.shared.events import PermissionAnswered, ProgressMade, RunStarted
from deputize.shared.permission import EditDetails, InfoDetails
from deputize.shared.request import DelegationRequest
from tests.orchestrator.cli.asked import FIRST, SECOND, asked
from tests.orchestrator.command_line import started
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.terminal import Terminal, on_terminal
from tests.waiting import until


@pytest.fixture
async def id(service: FakeService) -> str:
    """A delegation with two requests that wait."""
    id = (await service.create(DelegationRequest(task="x"))).delegation.id
    service.ask(id, asked(FIRST, id))
    edit = EditDetails(paths=["a.txt"], diff="\n".join(f"+{n}" for n in range(50)))
    service.ask(id, asked(SECOND, f"dlg_root {id}", details=edit, remembers={}))
    return id


async def called(url: str, *arguments: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(CliRunner(env={"DEPUTIZE_URL": url}).invoke, cli, arguments)
    return done.exit_code, done.stdout, done.stderr


async def test_what_waits_is_listed_and_shown_with_all_details(url: str, id: str) -> None:
    code, out, _ = await called(url, "permissions")
    assert (code, [line.split() for line in out.splitlines()]) == (
        0,
        [
            ["id", "expires", "delegation", "call"],
            ["0000aaaa", "0.0", "s", f"…{id[-6:]}", "$", "git", "push", "in", '"x"'],
            ["0000bbbb", "0.0", "s", f"…{id[-6:]}", "$", "git", "push", "in", '"x"'],
        ],
    )
    assert (await called(url, "permissions", "aaaa"))[1].splitlines() == [
        '$ git push in "x"  (permission 0000aaaa)',
        "  because bash changes something (execute) (rule ask_before_changes)",
        "  always: git push *",
        "  always, this tool: every call of bash",
        "  | git push",
    ]
    _, out, _ = await called(url, "permissions", SECOND)
    assert f"  asked by …{id[-6:]}, a child of dlg_root" in out
    assert "  | +49" in out
    _, out, _ = await called(url, "permissions", "--delegation", id[-8:], "--json")
    assert [json.loads(line)["permissionId"] for line in out.splitlines()] == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        (["approve", "0000aaaa"], {"outcome": "proceed_once"}),
        (["approve", FIRST, "--always"], {"outcome": "proceed_always"}),
        (["approve", "aaaa", "--tool"], {"outcome": "proceed_always_tool"}),
        (["approve", "aaaa", "--server"], {"outcome": "proceed_always_server"}),
        (
            ["approve", "aaaa", "--arguments", '{"command": "ls"}'],
            {"outcome": "modify", "arguments": {"command": "ls"}},
        ),
        (["deny", "aaaa"], {"outcome": "cancel"}),
        (["deny", "aaaa", "--reason", "no"], {"outcome": "cancel", "reason": "no"}),
    ],
)
async def test_an_answer_is_sent(url: str, service: FakeService, id: str, arguments: list[str], sent: Any) -> None:
    code, out, _ = await called(url, *arguments)
    assert (code, out) == (0, f"{FIRST}  {sent['outcome']}\n")
    given = service.given_answers[FIRST].model_dump(exclude_none=True, exclude={"at"})
    assert (given, SECOND in service.given_answers) == (sent, False)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["approve", "0000"], "no call that waits has an id like 0000"),
        (
            ["approve", "prm_cccc"],
            f"prm_cccc stands for 2 requests; give the id of one: {FIRST} ($ git push), {SECOND} ($ git push)",
        ),
        (["approve", "dlg_root2"], "no call that waits has an id like dlg_root2"),
        (["approve", "dlg_"], "no call that waits has an id like dlg_"),
        (["deny", FIRST[:-1] + "b"], "there is no permission request"),
        (["approve", "aaaa", "--arguments", "[]"], "it is not a JSON object"),
        (["approve", "aaaa", "--arguments", "{"], "it is not valid JSON"),
        (["approve", "aaaa", "--always", "--arguments", "{}"], "--always has no meaning with --arguments"),
        (["permissions", "u"], "no call that waits has an id like u"),  # a letter that no id has
    ],
)
async def test_a_wrong_answer_is_a_mistake_of_usage(
    url: str, service: FakeService, id: str, arguments: list[str], error: str
) -> None:
    code, _, err = await called(url, *arguments)
    assert (code, error in err) == (2, True), err
    assert service.given_answers == {}


@pytest.mark.parametrize("whole", [True, False])
async def test_the_id_of_a_delegation_stands_for_its_only_call_that_waits(
    url: str, service: FakeService, id: str, whole: bool
) -> None:
    assert (await called(url, "approve", "dlg_root"))[:2] == (0, f"{SECOND}  proceed_once\n"), "also of its children"
    given = id if whole else id[-8:]
    if not whole:
        assert (await called(url, "approve", given))[1] == f"{FIRST}  proceed_once\n"
        return
    service.ask(id, asked(f"prm_{'c' * 26}_0000dddd", id, title="write a.txt"))
    code, _, err = await called(url, "deny", given)
    assert (code, f"{id} stands for 2 requests; give the id of one: " in err, "(write a.txt)" in err) == (2, True, True)


async def test_no_two_that_wait_have_the_same_short_id(url: str, service: FakeService) -> None:
    for name in ("one", "two"):
        run = (await service.create(DelegationRequest(task=f"task {name}"))).delegation.id
        service.ask(run, asked(f"prm_{run.removeprefix('dlg_')}_0000aaaa", run))
    rows = [line.split() for line in (await called(url, "permissions"))[1].splitlines()[1:]]
    assert [row[-1] for row in rows] == ['one"', 'two"']
    assert (await called(url, "approve", rows[1][0]))[0] == 0
    assert [id.removeprefix("prm_")[:26] for id in service.given_answers] == [[*service.runs][1].removeprefix("dlg_")]


async def test_a_fetch_shows_its_address_once_and_the_same_lasting_answer_once(url: str, service: FakeService) -> None:
    run = (await service.create(DelegationRequest(task="x"))).delegation.id
    address = "https://example.org/a"
    details = InfoDetails(urls=[address], arguments={"url": address, "prompt": "p"})
    lasting = {"proceed_always": ["every call of bash"], "proceed_always_tool": ["every call of bash"]}
    service.ask(run, asked(FIRST, run, title=f"fetch {address}", details=details, remembers=lasting))
    _, out, _ = await called(url, "permissions", "@last")
    assert (out.count(address), out.count("every call of bash")) == (1, 1)
    assert '"prompt": "p"' in out
    assert "  always: every call of bash" in out.splitlines()


async def test_the_newest_one_and_one_that_was_answered(url: str, service: FakeService, id: str) -> None:
    assert (await called(url, "deny", "@last"))[:2] == (0, f"{SECOND}  cancel\n")
    code, _, err = await called(url, "approve", SECOND)
    assert (code, "was answered before: denied" in err) == (2, True)
    await called(url, "approve", "@last")
    assert await called(url, "permissions") == (0, "", "no call waits for permission\n")
    assert "no call that waits has an id like nonsense" in (await called(url, "approve", "nonsense"))[2]
    assert (await called(url, "approve", "@last"))[0] == 2


QUESTION = '$ git push in "Publish it"?'
KEYS = "y yes, a always, n no, ? all of it, or a reason:"
LINES = [
    '$ git push in "Publish it"  (permission 0000aaaa)',
    "  because bash changes something (execute) (rule ask_before_changes)",
    "  always: git push *",
    "  always, this tool: every call of bash",
    "  | git push",
]


def ask(service: FakeService, id: str, permission: str) -> None:
    event = asked(permission, id)
    service.ask(id, event)
    service.happen(id, event)


@asynccontextmanager
async def asking(url: str, service: FakeService) -> AsyncIterator[tuple[Terminal, str]]:
    """A run on a terminal, and its id: it has just asked."""
    service.fleet = [worker_card()]
    async with on_terminal("run", "Publish it", columns=120, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following, 60)
        (id,) = service.runs
        service.happen(id, RunStarted(worker="w", model="m", tools=[], limits=service.runs[id].effective_limits))
        ask(service, id, FIRST)
        await until(lambda: terminal.screen()[-2:] == [QUESTION, KEYS], 30)
        yield terminal, id


@pytest.mark.parametrize(
    ("typed", "outcome", "reason"),
    [
        ("y\n", "proceed_once", None),
        ("A\n", "proceed_always", None),
        ("n\r", "cancel", None),
        ("use make, ünd x\x7f\x7fnot git\n", "cancel", "use make, ündnot git"),
        ("yes please\x15y\n", "proceed_once", None),
    ],
)
async def test_a_question_is_answered_below_the_live_rows(
    url: str, service: FakeService, typed: str, outcome: str, reason: str | None
) -> None:
    async with asking(url, service) as (terminal, id):
        row, *question = terminal.screen()[-8:]
        assert (row[:28], question) == ("waiting: asks: $ git push, $", [*LINES, QUESTION, KEYS])
        terminal.type(typed)
        await until(lambda: FIRST in service.given_answers)
        given = service.given_answers[FIRST]
        assert (given.outcome, given.reason) == (outcome, reason)
        await until(lambda: QUESTION not in terminal.screen())
        service.happen(id, PermissionAnswered(permission_id=FIRST, path=[id], outcome=outcome))
        service.finish(id, summary="Done.")
        assert await terminal.ended() == 0
        assert "Done." in terminal.screen()
        assert QUESTION not in terminal.history()


async def test_what_is_typed_shows_and_a_question_answered_elsewhere_makes_room_for_the_next(
    url: str, service: FakeService
) -> None:
    async with asking(url, service) as (terminal, id):
        ask(service, id, SECOND)
        await until(lambda: terminal.last_line().startswith("(1 more) y yes, "))
        terminal.type("so")
        await until(lambda: terminal.last_line().endswith("or a reason: so"))
        service.happen(id, ProgressMade(message="something else"))
        await until(lambda: any("something else" in line for line in terminal.screen()))
        await until(lambda: terminal.last_line().endswith("or a reason: so"))
        service.happen(id, PermissionAnswered(permission_id=FIRST, path=[id], outcome="cancel", by="bob"))
        await until(lambda: any("(permission 0000bbbb)" in line for line in terminal.screen()))
        assert terminal.last_line() == KEYS
        assert '$ git push: denied by token "bob"' in terminal.screen()
        terminal.type("y\n")
        await until(lambda: SECOND in service.given_answers)
        assert FIRST not in service.given_answers


@pytest.mark.costly
async def test_in_a_fleet_the_call_the_task_and_the_diff_stay_in_sight(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    tmp_path.joinpath("t.txt").write_text("".join(f"Write the changelog {n}\n" for n in range(30)))
    async with on_terminal("batch", str(tmp_path / "t.txt"), columns=80, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following == 30, 60)
        diff = "--- a/CHANGELOG.md\n+++ b/CHANGELOG.md\n@@ -1 +1,40 @@\n" + "\n".join(f"+{n}" for n in range(40))
        details = EditDetails(diff=diff)
        for number, id in enumerate(service.runs):
            event = asked(
                f"prm_{id.removeprefix('dlg_')}_{number:08x}", id, title="write CHANGELOG.md", details=details
            )
            if number < 6:
                service.ask(id, event)
                service.happen(id, event)
        await until(lambda: terminal.last_line().startswith("(5 more) y yes, "))
        for id in [*service.runs][6:]:
            for number in range(3):
                service.happen(id, ProgressMade(message=f"something else {number}"))
        await until(lambda: terminal.drawn.count("something else") == 72)
        await until(lambda: terminal.last_line().startswith("(5 more) y yes, "))  # it is drawn again
        screen = terminal.screen()
        (question,) = [
            line for line in screen if re.fullmatch(r'write CHANGELOG.md in "Write the changelog \d"\?', line)
        ]
        assert screen[-2] == question
        assert screen[-3] == "  … 36 more lines: ? shows them"
        assert "  | +++ b/CHANGELOG.md" in screen
        assert "\x1b[32m+2\x1b[0m" in terminal.drawn
        rows = [line.split()[5:7] for line in screen if line.endswith("$0.0000") and line.startswith("Write the")]
        assert rows == [["waiting", "asks:"]] * 4
        assert not any("deputize approve" in line for line in terminal.history())
        terminal.type("?\n")
        await until(lambda: "  | +39" in terminal.screen())
        assert service.given_answers == {}
        terminal.type("y\n")
        await until(lambda: terminal.last_line().startswith("(4 more) y yes, "))
        assert question not in terminal.screen()


async def test_where_no_one_can_answer_a_request_is_denied_at_once(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    id = (await service.create(DelegationRequest(task="x"))).delegation.id
    with Lines() as shown:
        client: Any = service
        for permission, attended in ((SECOND, True), (FIRST, False)):
            questions = Questions(client, shown, attended=attended)
            event = asked(permission, id)
            service.ask(id, event)
            questions.hear(service.happen(id, event))
            if not attended:
                await until(lambda: service.given_answers)
            await questions.end()
    assert service.given_answers.keys() == {FIRST}
    given = service.given_answers[FIRST]
    assert (given.outcome, given.reason) == ("cancel", UNATTENDED)


async def test_the_past_is_not_asked_again(url: str, service: FakeService) -> None:
    async with asking(url, service) as (terminal, id):
        terminal.type("y\n")
        await until(lambda: FIRST in service.given_answers)
        async with on_terminal("watch", id, columns=120, DEPUTIZE_URL=url) as other:
            ask(service, id, SECOND)
            await until(lambda: "(permission 0000bbbb)" in other.drawn, 30)
            assert "(permission 0000aaaa)" not in other.drawn


async def test_without_a_terminal_a_line_shows_how_to_answer(url: str, service: FakeService) -> None:
    service.fleet = [worker_card()]
    async with started("run", "x", DEPUTIZE_URL=url) as command:
        await until(lambda: service.following, 60)
        (id,) = service.runs
        ask(service, id, FIRST)
        service.finish(id, summary="Done.")
        done = await command.done()
    line = "asks for permission: $ git push (`deputize approve 0000aaaa` or `deputize deny 0000aaaa`)"
    assert line in done.err.splitlines()
    assert QUESTION not in done.err
