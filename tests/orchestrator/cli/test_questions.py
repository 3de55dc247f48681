"""Questions that appear while a command watches: on a terminal they are answered where they appear."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from deputize.shared.events import PermissionAnswered, ProgressMade, RunStarted
from tests.orchestrator.cli.asked import FIRST, SECOND, asked
from tests.orchestrator.command_line import started
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.terminal import Terminal, on_terminal
from tests.waiting import until

QUESTION = "approve 0000aaaa? y yes, a always, n no, or a reason:"
LINES = [
    "permission 0000aaaa: $ git push",
    "  because bash changes something (execute) (rule ask_before_changes)",
    "  | git push",
    "  always: git push *",
    "  always, this tool: every call of bash",
]


def ask(service: FakeService, id: str, permission: str) -> None:
    event = asked(permission, id)
    service.ask(id, event)
    service.happen(id, event)


@asynccontextmanager
async def asking(url: str, service: FakeService) -> AsyncIterator[tuple[Terminal, str]]:
    """A run on a terminal, and its id: it has just asked."""
    service.fleet = [worker_card()]
    async with on_terminal("run", "x", columns=120, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following, 60)
        (id,) = service.runs
        service.happen(id, RunStarted(worker="w", model="m", tools=[], limits=service.runs[id].effective_limits))
        ask(service, id, FIRST)
        await until(lambda: QUESTION in terminal.last_line(), 30)
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
        screen = terminal.screen()
        assert [line for line in screen if line in LINES] == LINES
        assert [line for line in screen if "waiting" in line] == screen[-2:-1]
        terminal.type(typed)
        await until(lambda: FIRST in service.given_answers)
        given = service.given_answers[FIRST]
        assert (given.outcome, given.reason) == (outcome, reason)
        await until(lambda: "approve 0000aaaa?" not in "\n".join(terminal.screen()[-2:]))
        service.happen(id, PermissionAnswered(permission_id=FIRST, path=[id], outcome=outcome))
        service.finish(id, summary="Done.")
        assert await terminal.ended() == 0
        assert terminal.last_line() == "Done."
        assert "approve 0000aaaa?" not in "\n".join(terminal.history())


async def test_what_is_typed_shows_and_a_question_answered_elsewhere_makes_room_for_the_next(
    url: str, service: FakeService
) -> None:
    async with asking(url, service) as (terminal, id):
        ask(service, id, SECOND)
        await until(lambda: "approve 0000aaaa? (1 more)" in terminal.last_line())
        terminal.type("so")
        await until(lambda: terminal.last_line().endswith("or a reason: so"))
        service.happen(id, ProgressMade(message="something else"))
        await until(lambda: any("something else" in line for line in terminal.screen()))
        await until(lambda: terminal.last_line().endswith("or a reason: so"))
        service.happen(id, PermissionAnswered(permission_id=FIRST, path=[id], outcome="cancel", by="bob"))
        await until(lambda: "approve 0000bbbb? y yes" in terminal.last_line())
        assert any("permission 0000aaaa: cancel by bob" in line for line in terminal.screen())
        terminal.type("y\n")
        await until(lambda: SECOND in service.given_answers)
        assert FIRST not in service.given_answers


async def test_the_past_is_not_asked_again(url: str, service: FakeService) -> None:
    async with asking(url, service) as (terminal, id):
        terminal.type("y\n")
        await until(lambda: FIRST in service.given_answers)
        async with on_terminal("watch", id, columns=120, DEPUTIZE_URL=url) as other:
            ask(service, id, SECOND)
            await until(lambda: "approve 0000bbbb? " in other.last_line(), 30)
            assert "approve 0000aaaa? " not in other.drawn


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
    assert "approve 0000aaaa?" not in done.err
