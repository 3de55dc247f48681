"""`permissions`, `approve` and `deny`: which request an id stands for, what is sent, and what is printed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner

from deputize.orchestrator.cli import cli
from deputize.shared.permission import EditDetails
from deputize.shared.request import DelegationRequest
from tests.orchestrator.cli.asked import FIRST, SECOND, asked
from tests.orchestrator.fake_service import FakeService


@pytest.fixture
async def id(service: FakeService) -> str:
    """A delegation with two requests that wait."""
    id = (await service.accept(DelegationRequest(task="x"))).delegation.id
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
            ["0000aaaa", f"…{id[-6:]}", "0.0", "s", "$", "git", "push"],
            ["0000bbbb", f"…{id[-6:]}", "0.0", "s", "$", "git", "push"],
        ],
    )
    assert (await called(url, "permissions", "aaaa"))[1].splitlines() == [
        "permission 0000aaaa: $ git push",
        "  because bash changes something (execute) (rule ask_before_changes)",
        "  | git push",
        "  always: git push *",
        "  always, this tool: every call of bash",
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


async def test_the_newest_one_and_one_that_was_answered(url: str, service: FakeService, id: str) -> None:
    assert (await called(url, "deny", "@last"))[:2] == (0, f"{SECOND}  cancel\n")
    code, _, err = await called(url, "approve", SECOND)
    assert (code, "was answered before: cancel" in err) == (2, True)
    await called(url, "approve", "@last")
    assert await called(url, "permissions") == (0, "", "no call waits for permission\n")
    assert (await called(url, "approve", "@last"))[0] == 2
