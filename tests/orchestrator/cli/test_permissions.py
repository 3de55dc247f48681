"""`permissions`, `approve` and `deny`: which request an id stands for, what is sent, and what is printed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner

from deputize.orchestrator.cli import cli
from deputize.shared.permission import EditDetails, InfoDetails
from deputize.shared.request import DelegationRequest
from tests.orchestrator.cli.asked import FIRST, SECOND, asked
from tests.orchestrator.fake_service import FakeService


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
            ["id", "delegation", "expires", "call"],
            ["0000aaaa", f"…{id[-6:]}", "0.0", "s", "$", "git", "push", "in", '"x"'],
            ["0000bbbb", f"…{id[-6:]}", "0.0", "s", "$", "git", "push", "in", '"x"'],
        ],
    )
    assert (await called(url, "permissions", "aaaa"))[1].splitlines() == [
        'permission 0000aaaa: $ git push in "x"',
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
        (["approve", "prm_cccc"], "prm_cccc stands for 2 requests; give more of it: "),
        (["deny", FIRST[:-1] + "b"], "there is no permission request"),
        (["approve", "aaaa", "--arguments", "[]"], "it is not a JSON object"),
        (["approve", "aaaa", "--arguments", "{"], "it is not valid JSON"),
        (["approve", "aaaa", "--always", "--arguments", "{}"], "--always has no meaning with --arguments"),
        (["permissions", "x"], "no call that waits has an id like x"),
    ],
)
async def test_a_wrong_answer_is_a_mistake_of_usage(
    url: str, service: FakeService, id: str, arguments: list[str], error: str
) -> None:
    code, _, err = await called(url, *arguments)
    assert (code, error in err) == (2, True), err
    assert service.given_answers == {}


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
    assert (await called(url, "approve", "@last"))[0] == 2
